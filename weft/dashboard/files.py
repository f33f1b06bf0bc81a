"""Files of a run folder, which may come from somebody else: regular files only, read in bounds, never through links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

LARGEST_JSON = 16 * 2**20
"""Bytes of a JSON file that are read; a larger one is none of ours."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read. Raises OSError for anything else, a link too; never waits, as for a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        yield file


def listing(folder: Path, endings: tuple[str, ...]) -> list[str]:
    """The names of regular files in a folder that end so, sorted; none where there is no such folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.name.endswith(endings) and e.is_file(follow_symlinks=False))
    return []


class JsonFile:
    """A JSON object in a file that others replace; decoded anew only where it is another file than before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why it could not be read; empty where it could, or is not there."""
        self._seen: tuple[int, int, int] | None = None
        self._value: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """What the file holds; empty where it is not there, or is not an object."""
        try:
            with opened(self.path) as file:
                now = os.fstat(file.fileno())
                seen = (now.st_ino, now.st_mtime_ns, now.st_size)
                if seen != self._seen:
                    self._seen = seen
                    self._value, self.problem = _decode(file.read(LARGEST_JSON + 1))
        except FileNotFoundError:
            self._seen, self._value, self.problem = None, {}, ""
        except OSError as error:
            self._seen, self._value, self.problem = None, {}, str(error.strerror or error)
        return self._value

    @property
    def changed_at(self) -> float:
        """When the file that was read last was written, in seconds since 1970; 0 where there is none."""
        return self._seen[1] * 1e-9 if self._seen else 0.0


def _decode(content: bytes) -> tuple[dict[str, Any], str]:
    if len(content) > LARGEST_JSON:
        return {}, f"more than {LARGEST_JSON >> 20} MiB"
    try:
        return msgspec.json.decode(content, type=dict[str, Any]), ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return {}, str(error)
