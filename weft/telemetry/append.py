"""A file that only grows, by whole entries."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class AppendFile:
    """Appends entries to a file, each of them whole or not at all; made with its folder at the first.

    A file that is removed or replaced under it is not written to any more: what was written there would be lost, or
    land in another's file. ``close``, and the next entry makes it again.

    An entry has left the process when ``append`` returns: a kill loses none. There is no sync, so a power loss may
    cost the last few. One writer per file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def append(self, entry: bytes) -> None:
        """Append an entry. Raises OSError, as on a full disk; the file is then as before, and the next may succeed."""
        if self._descriptor is not None and not self._is_there(self._descriptor):
            raise OSError(errno.ESTALE, "it was removed or replaced", str(self.path))
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        before = os.fstat(self._descriptor).st_size
        try:
            rest = memoryview(entry)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, before)
            raise

    def _is_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
