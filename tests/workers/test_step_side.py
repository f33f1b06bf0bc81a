"""The side of environments by itself: its channels are real, the other end is the test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.core.delivery import Delivery
from weft.core.trees import tree_leaves
from weft.envs.fake import ScriptedEnv
from weft.envs.registry import open_environment
from weft.runtimes.roles.step import Seat, Slice, StepSide
from weft.runtimes.workers.counting.account import Account, OfSide, OfWire
from weft.runtimes.workers.side import SideContext, Stopped
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec, Message, Stamp
from weft.streams.registry import create, open_reader, open_writer

ROWS = 2


class Bench:
    """Two slices of two environments in one side, and act's ends of their channels. Wires 0 and 1 are timesteps."""

    def __init__(self) -> None:
        self.factory: Any = open_environment(lambda: ScriptedEnv()).host
        buffers = tree_leaves(timestep_buffers(self.factory.spec, (ROWS,)))
        leaves = tuple(ArraySpec(str(i), leaf.shape, str(leaf.dtype)) for i, leaf in enumerate(buffers))
        self.bells, self.account = (Bell(), Bell()), Account(1, 4)
        asked = {"timestep": leaves, "action": (ArraySpec("action", (ROWS,), "int32"),)}
        self.created = {
            f"{name}/{lane}": create(ChannelSpec(f"{name}/{lane}", what, 1, Delivery.BLOCK, "inproc"))
            for name, what in asked.items()
            for lane in range(2)
        }
        self.seen = [open_reader(self.spec(f"timestep/{lane}"), self.bells[1], self.bells[0]) for lane in range(2)]
        self.actions = [open_writer(self.spec(f"action/{lane}"), self.bells[1], [self.bells[0]]) for lane in range(2)]
        self.sides: list[StepSide] = []

    def spec(self, name: str) -> ChannelSpec:
        return self.created[name].spec

    def side(self, life: int) -> StepSide:
        """The side in one of its lives; where it would wait it stops."""
        mine, other = self.bells
        slices = []
        for lane in range(2):
            timesteps = open_writer(self.spec(f"timestep/{lane}"), mine, [other])
            actions = open_reader(self.spec(f"action/{lane}"), mine, None)
            slices.append(Slice(lane, lane * ROWS, ROWS, [Seat("", timesteps, actions, self.account.wires[lane])]))
        link: Any = None
        side = StepSide(SideContext(0, "env-0", mine, self.account, link, life), self.factory, 1, slices)
        self.sides.append(side)
        return side

    def act(self, lane: int, seen: Message, tag: int = 0, **other: int) -> None:
        """Answer a timestep, which is released."""
        stamp = seen.stamp._replace(tag=tag, **other)
        self.seen[lane].release(seen)
        assert self.actions[lane].send([np.zeros(ROWS, np.int32)], stamp, timeout=0)

    def receive(self, lane: int) -> Message:
        message = self.seen[lane].receive(0)
        assert message is not None
        return message

    def sent(self) -> list[int]:
        return [int(self.account.wires[lane][OfWire.SENT]) for lane in range(2)]

    def close(self) -> None:
        for side in self.sides:
            side.close()
        for one in self.created.values():
            one.close()
        for bell in self.bells:
            bell.close()
        self.account.close()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.close()


def until_it_waits(side: StepSide, waits: int = 1) -> None:
    """Run the side until it waits for the ``waits``-th time."""
    left = [waits]

    def wait() -> None:
        left[0] -= 1
        if not left[0]:
            raise Stopped

    side.context.wait = wait  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        side.run()


def test_a_slice_whose_slot_is_taken_keeps_no_other_from_beginning(bench):
    """A predecessor's timestep is in the slot, and act takes it only once it has heard of the other slice."""
    first = bench.side(0)
    first.start()
    lives = [bench.receive(lane) for lane in range(2)]
    assert all(message.stamp.incarnation == 0 for message in lives)
    bench.seen[1].release(lives[1])  # act has taken that of the second slice, not that of the first
    second = bench.side(1)
    second.start()  # does not wait
    begun = bench.receive(1)
    assert begun.stamp.incarnation == 1
    assert bench.seen[0].receive(0) is None
    bench.seen[0].release(lives[0])
    until_it_waits(second)
    late = bench.receive(0)
    assert late.stamp[:3] == Stamp(0, 1, 0)[:3]
    for here, there in zip(late.arrays, begun.arrays, strict=True):
        assert np.shape(here) == np.shape(there)


def test_steps_and_messages_are_counted_where_they_are_made(bench):
    side = bench.side(0)
    side.start()
    assert bench.sent() == [1, 1]
    assert bench.account.sides[0][OfSide.STEPS] == 0, "a reset is no step"
    seen = [bench.receive(lane) for lane in range(2)]
    for lane, sequence in ((0, 1), (0, 2), (1, 1)):
        bench.act(lane, seen[lane], tag=5)
        until_it_waits(side)
        seen[lane] = bench.receive(lane)
        assert seen[lane].stamp == Stamp(lane, 0, sequence, 0, ROWS, 5), "it tells which life of act it follows from"
    assert bench.sent() == [3, 2]
    assert bench.account.sides[0][OfSide.STEPS] == 3 * ROWS


@pytest.mark.parametrize("other", [{"incarnation": 7}, {"sequence": 3}])
def test_an_action_that_was_meant_for_a_predecessor_is_left(bench, other):
    side = bench.side(0)
    side.start()
    bench.act(0, bench.receive(0), **other)
    until_it_waits(side)
    assert bench.account.sides[0][OfSide.STEPS] == 0
    assert bench.seen[0].receive(0) is None
    assert bench.actions[0].reserve(0) is not None, "its slot is free again"


def test_where_act_died_the_last_timestep_is_sent_again_once(bench):
    side = bench.side(0)
    side.start()
    first = bench.receive(0)
    values = [np.array(leaf) for leaf in first.arrays]
    bench.seen[0].release(first)  # taken, and then act dies
    until_it_waits(side, waits=2)
    assert bench.seen[0].receive(0) is None, "act is alive: it will answer"
    bench.account.wires[0][OfWire.READER_LIFE] = 1
    until_it_waits(side, waits=2)
    again = bench.receive(0)
    assert again.stamp == first.stamp
    for here, there in zip(again.arrays, values, strict=True):
        np.testing.assert_array_equal(here, there)
    bench.seen[0].release(again)
    until_it_waits(side, waits=3)
    assert bench.seen[0].receive(0) is None
    assert bench.sent() == [1, 1], "it is the same message"
