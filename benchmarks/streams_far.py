"""The writing process of ``streams.py``: ``python -m benchmarks.streams_far KIND JSON``; a line on stdin is a count."""

from __future__ import annotations

import json
import mmap
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.registry import open_reader, open_writer

SLOTS = 4
FRAMES = (64, 84, 84, 4)  # uint8: what a worker with 64 environments asks with
ACTIONS = (64,)  # int32

Run = Callable[[int], float]


class BareRing(NamedTuple):
    """Slots in a mapping, and two counting eventfds: the least that two processes need to share a queue."""

    slots: Sequence[np.ndarray[Any, Any]]
    full: int
    free: int

    @classmethod
    def over(cls, memory: mmap.mmap, slots: int, full: int, free: int) -> Self:
        """One process's view of it."""
        size = len(memory) // slots
        return cls([np.ndarray((size,), np.uint8, memory, i * size) for i in range(slots)], full, free)


def weft(spec: dict[str, Any], bells: list[list[int]], fill: bool) -> Run:
    """Sends; ``fill``: with a copy into the slot, as an actor does."""
    mine, theirs = (Bell.from_fd(*fds) for fds in bells)
    channel = ChannelSpec.from_json(spec)
    writer, source = open_writer(channel, mine, [theirs]), np.ones(channel.arrays[0].shape, np.uint8)

    def run(count: int) -> float:
        for number in range(count):
            slot = writer.reserve()
            assert slot is not None
            if fill:
                np.copyto(slot[0], source)
            writer.commit(Stamp(sequence=number))
        return 0.0

    return run


def bare(memory: int, size: int, slots: int, full: int, free: int) -> Run:
    """The same, by hand."""
    ring = BareRing.over(mmap.mmap(memory, size * slots), slots, full, free)
    source = np.ones(size, np.uint8)

    def run(count: int) -> float:
        for number in range(count):
            os.eventfd_read(ring.free)
            np.copyto(ring.slots[number % slots], source)
            os.eventfd_write(ring.full, 1)
        for _ in range(slots):  # all taken: the next run begins at slot 0 again
            os.eventfd_read(ring.free)
        os.eventfd_write(ring.free, slots)
        return 0.0

    return run


def bare_socket(port: int, size: int) -> Run:
    """sendall, from one buffer."""
    connection, source = socket.create_connection(("127.0.0.1", port)), bytearray(size)

    def run(count: int) -> float:
        for _ in range(count):
            connection.sendall(source)
        return 0.0

    return run


def weft_trip(asking: dict[str, Any], answering: dict[str, Any], bells: list[list[int]]) -> Run:
    """Asks with frames and waits for actions; the median of a round trip in microseconds."""
    mine, theirs = (Bell.from_fd(*fds) for fds in bells)
    writer = open_writer(ChannelSpec.from_json(asking), mine, [theirs])
    reader = open_reader(ChannelSpec.from_json(answering), mine, theirs)
    frames, actions = np.ones(FRAMES, np.uint8), np.ones(ACTIONS, np.int32)

    def trip() -> None:
        slot = writer.reserve()
        assert slot is not None
        np.copyto(slot[0], frames)
        writer.commit(Stamp())
        message = reader.receive()
        assert message is not None
        np.copyto(actions, message.arrays[0])
        reader.release(message)

    return lambda count: median_of(trip, count)


def bare_trip(memory: int, size: int, slots: int, full: int, free: int) -> Run:
    """The same, by hand."""
    (slot,), frames = BareRing.over(mmap.mmap(memory, size), 1, full, free).slots, np.ones(FRAMES, np.uint8).reshape(-1)
    actions = np.ones(ACTIONS, np.int32).view(np.uint8)

    def trip() -> None:
        np.copyto(slot[: frames.size], frames)
        os.eventfd_write(full, 1)
        os.eventfd_read(free)
        np.copyto(actions, slot[frames.size :])

    return lambda count: median_of(trip, count)


def median_of(trip: Callable[[], None], count: int) -> float:
    """Microseconds."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        trip()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


KINDS: dict[str, Callable[..., Run]] = {
    "weft": weft,
    "bare": bare,
    "socket": bare_socket,
    "weft-trip": weft_trip,
    "bare-trip": bare_trip,
}

if __name__ == "__main__":
    run = KINDS[sys.argv[1]](**json.loads(sys.argv[2]))
    for line in sys.stdin:
        print(run(int(line)), flush=True)
