"""Channels for tests: opened, used and closed, with a check that nothing of them is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Message, Reader, Writer
from weft.streams.registry import create, create_together, open_reader, open_writer
from weft.streams.schema import array_specs

SIMPLE = array_specs({"a": np.zeros((3, 2), np.float32), "b": np.zeros(4, np.int64)})
BLOCK, LATEST = Delivery.BLOCK, Delivery.LATEST


def eventually(true: Callable[[], Any], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


SHARED = "-shared"
"""After a scheme: the channel is the second of three at one listener, and the first has its reader in this process."""

COMPRESSED = "-compressed"
"""After a scheme: its ends compress what ``compression.KINDS`` and ``LEAST`` let them."""


class Channel:
    """A channel with bells, and ends opened when asked for; closes everything."""

    def __init__(self, scheme: str, specs: Any = SIMPLE, capacity: int = 4, delivery: Delivery = BLOCK) -> None:
        kind = scheme.removesuffix(SHARED).removesuffix(COMPRESSED)
        asked = ChannelSpec("unroll", specs, capacity, delivery, kind, compress=scheme.endswith(COMPRESSED))
        if scheme.endswith(SHARED):
            self._neighbour, self.created, self._last = create_together([asked] * 3)
            self._beside = [self._neighbour, self._last]
        else:
            self.created, self._beside = create(asked), []
        self.spec = ChannelSpec.from_json(self.created.spec.to_json())
        self.writer_bell, self.reader_bell, self.bells = Bell(), Bell(), [Bell()]
        self._ends: list[Writer | Reader] = []

    def writer(self, **fields: Any) -> Writer:
        spec = replace(self.spec, **fields)
        end = open_writer(spec, self.writer_bell, [self.reader_bell, *self.bells])
        self._ends.append(end)
        return end

    def reader(self, bell: Bell | None = None, **fields: Any) -> Reader:
        if self._beside and self._neighbour is not None and self.spec.delivery is BLOCK:
            self._ends.append(open_reader(self._neighbour.spec, self.reader_bell, self.writer_bell))
            self._neighbour = None  # type: ignore[assignment]
        end = open_reader(replace(self.spec, **fields), bell or self.reader_bell, self.writer_bell)
        self._ends.append(end)
        return end

    def ends(self) -> tuple[Writer, Reader]:
        return self.writer(), self.reader()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        for end in reversed(self._ends):  # readers first: a writer waits for its reader
            end.close()
        for created in (self.created, *self._beside):
            created.close()
        for bell in (self.writer_bell, self.reader_bell, *self.bells):
            bell.close()


def arrays(number: int) -> list[np.ndarray[Any, Any]]:
    return [np.full((3, 2), number, np.float32), np.arange(4, dtype=np.int64) + number]


def got(reader: Reader, timeout: float = 5.0) -> Message:
    message = reader.receive(timeout)
    assert message is not None
    return message


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> set[str]:
    """Where memory of channels is mapped; what an earlier test left to the collector may still be."""
    return {line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "weft-" in line}


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """Every descriptor, thread and mapping of a channel is gone once its ends are closed."""
    fds, threads, maps = descriptors(), set(threading.enumerate()), mappings()
    yield
    assert eventually(lambda: descriptors() <= fds), "file descriptors left open"
    assert set(threading.enumerate()) <= threads
    assert mappings() <= maps
