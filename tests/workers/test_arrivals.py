"""A learner with many wires over sockets looks at those that have something, and misses none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from channels import eventually

from weft.core.delivery import Delivery
from weft.runtimes.synchrony import synchrony
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import Account, Fate
from weft.runtimes.workers.layout.blueprint import Wire
from weft.runtimes.workers.wires import WireReader, WireWriter
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec, Reader
from weft.streams.registry import create_together, open_reader, open_writer

LANES, STEPS = 40, 10


class Counting:
    """A reader that counts how often it is looked at."""

    def __init__(self, end: Reader, number: int, looks: Counter[int]) -> None:
        self._end, self._number, self._looks = end, number, looks

    def receive(self, timeout: float | None) -> Any:
        self._looks[self._number] += 1
        return self._end.receive(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)


class Room:
    """``LANES`` wires from their writers to one collector."""

    def __init__(self, stack: ExitStack, scheme: str) -> None:
        self.account, self.looks, bells = Account(2, LANES), Counter[int](), (Bell(), Bell())
        stack.callback(self.account.close)
        for bell in bells:
            stack.callback(bell.close)
        arrays = (ArraySpec("x", (1,), "int64"),)
        wires = [
            Wire(i, f"unroll/{i}", "unroll", "act", 0, (1,), i, scheme, 2, Delivery.BLOCK, False, STEPS, 9)
            for i in range(LANES)
        ]
        created = create_together([ChannelSpec(w.name, arrays, 2, w.delivery, scheme) for w in wires])
        for channel in created:
            stack.callback(channel.close)
        writers = [open_writer(channel.spec, bells[0], [bells[1]]) for channel in created]
        readers = [open_reader(channel.spec, bells[1], bells[0]) for channel in created]
        for end in (*writers, *readers):
            stack.callback(end.close)
        if scheme != "shm":  # a writer that has not met its reader waits for it when it closes
            assert eventually(lambda: all(end._attached.link._known for end in writers))  # type: ignore[attr-defined]
        self.writers = [WireWriter(w, end, self.account, 0) for w, end in zip(wires, writers, strict=True)]
        self._counting = [Counting(end, i, self.looks) for i, end in enumerate(readers)]
        self.collector = Collector(
            [WireReader(w, end, self.account, 1) for w, end in zip(wires, self._counting, strict=True)],
            synchrony(False, 9),
        )

    def send(self, lane: int) -> None:
        assert eventually(lambda: self.writers[lane].reserve() is not None)
        np.copyto(self.writers[lane].reserve()[0], [lane])  # type: ignore[index]
        before = self._counting[lane].unread
        self.writers[lane].commit(0)
        assert eventually(lambda: self._counting[lane].unread > before)

    def batch(self) -> list[int] | None:
        found = self.collector.collect(0)
        return None if found is None else [int(message.arrays[0][0]) for message in found]


@pytest.fixture(params=["shm", "tcp", "ipc"])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    with ExitStack() as stack:
        yield Room(stack, str(request.param))


def test_every_lane_is_in_the_batch_once(room: Room) -> None:
    for _ in range(3):
        for lane in reversed(range(LANES)):
            assert room.batch() is None
            room.send(lane)
        found = room.batch()
        assert sorted(found or []) == list(range(LANES))
        room.collector.trained(0)
    assert int(room.account.sides[1][Fate.TRAINED]) == 3 * LANES * STEPS


def test_quick_lanes_stand_in_for_slow_ones(room: Room) -> None:
    for lane in range(LANES // 2):
        room.send(lane)
        room.send(lane)
    found = room.batch()
    assert sorted(found or []) == sorted([*range(LANES // 2)] * 2)
    room.collector.trained(0)
    assert room.batch() is None


def test_only_those_that_have_something_are_looked_at(room: Room, request: pytest.FixtureRequest) -> None:
    room.batch()
    room.looks.clear()
    room.send(7)
    assert room.batch() is None
    if "shm" in request.node.name:  # memory tells nobody what is written to it
        assert set(room.looks) == set(range(LANES))
    else:
        assert set(room.looks) == {7}
        room.looks.clear()
        assert room.batch() is None
        assert not room.looks
