"""``live.json``: how a run stands at this moment, for whoever looks on from another process.

One small file, replaced twice a second: the newest record, the workers and what passes between them, and the last
things that were said. Nothing in it is needed to go on, so it is never synced, and trouble with it costs nothing: the
next one replaces it.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from weft.telemetry.sink import Record

NAME = "live.json"
FORMAT = 1
"""Of the file; a reader that finds another leaves it alone."""

_NOTES = 100  # of what was said, the newest
_LONGEST = 2000  # characters of one of these


class Live:
    """A sink that keeps ``path`` up to date; ``held`` says whether the folder is still the run's own.

    ``facts`` gives what else to say, any JSON, asked at each write; ``refresh`` writes at once, for what should be seen
    at once. It never raises OSError. One thread uses it.
    """

    every = 0.5

    def __init__(
        self,
        path: Path,
        held: Callable[[], bool],
        facts: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._held, self._facts, self._clock = path, held, facts, clock
        self._notes: deque[dict[str, Any]] = deque(maxlen=_NOTES)
        self._record: Record = {}
        self._env_steps = 0
        self._began = clock()
        self._open = True

    def refresh(self) -> None:
        """Replace the file now, with the record of before: a worker has died, say."""
        self._put(training=True)

    def hear(self, kind: str, text: str) -> None:
        """Something was said, a ``note`` or a ``warning``."""
        self._notes.append({"at": self._clock(), "kind": kind, "text": text[:_LONGEST]})
        self._put(training=True)

    def write(self, record: Record, env_steps: int) -> None:
        """Replace the file. Evaluations, which are in one record alone, stay until the next."""
        found = {name: value for name, value in self._record.items() if name.startswith("eval/")}
        self._record, self._env_steps = {**found, **record}, env_steps
        self._put(training=True)

    def close(self) -> None:
        """Say that the run has ended; the last state stays."""
        self._put(training=False)
        self._open = False

    def _put(self, *, training: bool) -> None:
        if not self._open or not self._held():
            return
        document: Mapping[str, Any] = {
            "format": FORMAT,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": self._began,
            "at": self._clock(),
            "training": training,
            "env_steps": self._env_steps,
            "record": {n: v for n, v in self._record.items() if isinstance(v, str) or math.isfinite(v)},
            "notes": list(self._notes),
            **self._facts(),
        }
        temporary = self._path.with_name(f".{NAME}.tmp")
        with suppress(OSError):
            temporary.write_bytes(msgspec.json.encode(document))
            os.replace(temporary, self._path)
