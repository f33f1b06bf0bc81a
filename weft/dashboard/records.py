"""``metrics.jsonl`` as columns of numbers: read once, then only what was appended."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from weft.dashboard.files import opened

CHUNK = 4 * 2**20
"""Bytes that are decoded at a time."""

BUDGET = 64 * 2**20
"""Bytes that one ``refresh`` reads at most: a file of a gigabyte is shown in part while the rest is read."""

MOST_COLUMNS = 2000
"""Names of metrics that are kept; a run has some dozens, a population some hundreds."""

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_LINE: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class Column:
    """A growing array of numbers, NaN where a record had none."""

    def __init__(self, rows: int) -> None:
        self._values: Floats = np.full(max(1024, rows), np.nan)
        self._size = rows

    def append(self, values: Floats) -> None:
        """Add values at the end."""
        size = self._size + len(values)
        if size > len(self._values):
            grown: Floats = np.full(max(size, 2 * len(self._values)), np.nan)
            grown[: self._size] = self._values[: self._size]
            self._values = grown
        self._values[self._size : size] = values
        self._size = size

    @property
    def values(self) -> Floats:
        """A view, valid for reading while others append."""
        return self._values[: self._size]


class Records:
    """The records of one run. Any thread may use it.

    The file only grows while a run goes on, by whole lines. Where it is cut or replaced, as when a run is resumed from
    a checkpoint, it is read again from its start. A line that is not whole yet is left for the next time; one that is
    damaged is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self.rows, self._offset, self._inode, self._end = 0, 0, -1, 0
        self._columns: dict[str, Column] = {}
        self._tail = b""

    def refresh(self, budget: int = BUDGET) -> bool:
        """Read what was appended, ``budget`` bytes at most; whether there is anything new. Never raises OSError."""
        with self._lock:
            before, inode = self.rows, self._inode
            try:
                with opened(self.path) as file:
                    found = os.fstat(file.fileno())
                    if found.st_ino != self._inode or found.st_size < self._offset or not self._goes_on(file.fileno()):
                        self._forget()
                        self._inode = found.st_ino
                    self._end = found.st_size
                    self._read(file.fileno(), budget)
            except OSError:
                self._forget()
            return self.rows != before or self._inode != inode

    @property
    def share(self) -> float:
        """What part of the file has been read, 0 to 1."""
        return self._offset / self._end if self._end else 1.0

    @property
    def nbytes(self) -> int:
        """Memory that the columns take, about."""
        return len(self._columns) * self.rows * 8

    @property
    def names(self) -> list[str]:
        """The metrics that any record has, sorted."""
        with self._lock:
            return sorted(self._columns)

    def columns(self, *names: str) -> list[Floats]:
        """Columns of these names, of the same length, NaN where a record has no such number."""
        with self._lock:
            return [c.values if (c := self._columns.get(n)) else np.full(self.rows, np.nan) for n in names]

    def last(self) -> dict[str, float]:
        """The numbers of the newest record."""
        with self._lock:
            found = {name: float(column.values[-1]) for name, column in self._columns.items() if self.rows}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _goes_on(self, descriptor: int) -> bool:
        """Whether what was read last is still there: a file may be cut and written on between two looks."""
        if not self._tail:
            return True
        return os.pread(descriptor, len(self._tail), self._offset - len(self._tail)) == self._tail

    def _read(self, descriptor: int, budget: int) -> None:
        until = self._offset + budget
        while self._offset < until:
            chunk = os.pread(descriptor, CHUNK, self._offset)
            whole = chunk[: chunk.rfind(b"\n") + 1]
            if not whole:
                if len(chunk) == CHUNK:  # no line of ours is that long: leave it out
                    self._offset += CHUNK
                    continue
                return
            self._take(whole)
            self._offset += len(whole)
            self._tail = whole[-64:]
            if len(chunk) < CHUNK:
                return

    def _take(self, lines: bytes) -> None:
        records = decode_lines(lines)
        names = {name for record in records for name in record}
        for name in names - self._columns.keys():
            if len(self._columns) < MOST_COLUMNS:
                self._columns[name] = Column(self.rows)
        for name, column in self._columns.items():
            column.append(numbers([record.get(name) for record in records]))
        self.rows += len(records)


def decode_lines(lines: bytes) -> list[dict[str, Any]]:
    """The records in whole lines; a line that is no JSON object is left out."""
    try:
        return _LINE.decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    found = []
    for line in lines.splitlines():
        try:
            found.append(_LINE.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


def numbers(values: list[Any]) -> Floats:
    """Values as an array; what is no number becomes NaN."""
    try:
        return np.array(values, np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        return np.array([v if isinstance(v, int | float) and abs(v) < 1e300 else math.nan for v in values], np.float64)
