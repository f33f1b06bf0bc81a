"""Records as TensorBoard scalars, in tensorboardX's event format.

Only the format is taken from tensorboardX, not its ``SummaryWriter``. That one hands events to a thread over a
bounded queue, and when the thread dies of a full disk the next ``add_scalar`` waits for ever; and it names files by
the second and truncates them, so that a quick resume would erase its past.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.telemetry.append import AppendFile
from weft.telemetry.sink import Record


def is_available() -> bool:
    """Whether tensorboardX is installed; does not import it."""
    return find_spec("tensorboardX") is not None


class TensorBoard:
    """Writes the numbers of each record at ``env_steps``; text and NaN are left out.

    Nothing is made, nor tensorboardX imported, before the first record. ``purge_step`` tells TensorBoard to forget
    what an earlier execution wrote at that step and later: it will come again. ``config`` becomes the run's
    hyper-parameters, which TensorBoard compares runs by.
    """

    every = 0.05  # an event takes half a millisecond: at most a hundredth of the time

    def __init__(self, folder: Path, purge_step: int | None = None, config: Mapping[str, Any] | None = None) -> None:
        # TensorBoard reads all files with "tfevents" in their name, in the order of the names.
        name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
        self._file = AppendFile(folder / name)
        self._purge_step, self._config = purge_step, dict(config or {})
        self._started = False

    def write(self, record: Record, env_steps: int) -> None:
        """Write one event with all the record's numbers. Raises OSError."""
        from tensorboardX.proto.summary_pb2 import Summary

        if not self._started:
            self._start()
        values = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in record.items()
            if name != "env_steps" and not isinstance(value, str) and math.isfinite(value)
        ]
        self._file.append(_framed(step=env_steps, summary=Summary(value=values)))

    def reopen(self, env_steps: int) -> None:
        """Go on after ``env_steps``: TensorBoard forgets what came later. Its file may have been removed."""
        self._file.close()
        self._purge_step, self._started = env_steps + 1, False

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _start(self) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog

        head = _framed(file_version="brain.Event:2")
        if self._purge_step is not None:
            head += _framed(step=self._purge_step, session_log=SessionLog(status=SessionLog.START))
        if self._config:
            from tensorboardX.summary import hparams

            found = hparams(dict(_flat(self._config)), {"return_mean": 0.0})
            head += b"".join(_framed(summary=summary) for summary in found[:2])  # the third says that it has ended
        self._file.append(head)
        self._started = True


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float | str | bool]]:
    """Nested values by their paths, ``algo.clip``; of what is no number, its text."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, bool | int | float | str):
            yield before + name, value
        elif value is not None:
            yield before + name, str(value)


def _framed(**fields: Any) -> bytes:
    """An event in its record: length, the length's checksum, the event, the event's checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    event: bytes = Event(wall_time=time.time(), **fields).SerializeToString()
    length = struct.pack("<Q", len(event))
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), event, struct.pack("<I", masked_crc32c(event))])
