"""Records as lines of strict JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.telemetry.append import AppendFile
from weft.telemetry.sink import Record


class Jsonl:
    """Appends one line per record: ``{"env_steps": …, …}``; NaN and infinity become null, for strict JSON has neither.

    A line is there for readers, and safe from a kill, as soon as it is written.
    """

    every = 0.0

    def __init__(self, path: Path) -> None:
        self._file = AppendFile(path)

    def write(self, record: Record, env_steps: int) -> None:
        """Append the record; its ``env_steps`` is that of the call. Raises OSError."""
        line = msgspec.json.encode({"env_steps": env_steps} | dict(record) | {"env_steps": env_steps})
        self._file.append(line + b"\n")

    def reopen(self, env_steps: int) -> None:
        """Open the file anew for the next line; whoever calls it has cut the file, or will."""
        self._file.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
