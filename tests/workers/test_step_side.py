"""The env side by itself: its channels are real, the other end is the test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.core.buffers import timestep_buffers
from weft.core.delivery import Delivery
from weft.core.trees import tree_leaves
from weft.envs.fake import ScriptedEnv
from weft.envs.registry import open_environment
from weft.runtimes.roles.step import EnvSide, Slice
from weft.runtimes.workers.counting.account import Account
from weft.runtimes.workers.side import SideContext, Stopped
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec, Stamp
from weft.streams.registry import create, open_reader, open_writer

ROWS = 2


class Bench:
    """Two slices of two environments in one env side, and act's ends of their channels."""

    def __init__(self) -> None:
        self.factory: Any = open_environment(lambda: ScriptedEnv()).host
        buffers = tree_leaves(timestep_buffers(self.factory.spec, (ROWS,)))
        leaves = tuple(ArraySpec(str(i), leaf.shape, str(leaf.dtype)) for i, leaf in enumerate(buffers))
        self.bells, self.account = (Bell(), Bell()), Account(2, 1, 1)
        asked = {"timestep": leaves, "action": (ArraySpec("action", (ROWS,), "int32"),)}
        self.created = {
            f"{name}/{lane}": create(ChannelSpec(f"{name}/{lane}", what, 1, Delivery.BLOCK, "inproc"))
            for name, what in asked.items()
            for lane in range(2)
        }
        self.seen = [open_reader(self.spec(f"timestep/{lane}"), self.bells[1], self.bells[0]) for lane in range(2)]

    def spec(self, name: str) -> ChannelSpec:
        return self.created[name].spec

    def side(self, life: int) -> EnvSide:
        """The side in one of its lives."""
        mine, other = self.bells
        slices = [
            Slice(
                lane,
                lane * ROWS,
                ROWS,
                open_writer(self.spec(f"timestep/{lane}"), mine, [other]),
                open_reader(self.spec(f"action/{lane}"), mine, other),
            )
            for lane in range(2)
        ]
        link: Any = None
        return EnvSide(SideContext(0, "env", mine, self.account, link, life), self.factory, 1, slices)

    def close(self) -> None:
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


def test_a_slice_whose_slot_is_taken_keeps_no_other_from_beginning(bench):
    """A predecessor's timestep is in the slot, and act takes it only once it has heard of the other slice."""
    first = bench.side(0)
    first.start()
    lives = [reader.receive(0) for reader in bench.seen]
    assert all(message is not None and message.stamp.incarnation == 0 for message in lives)
    bench.seen[1].release(lives[1])  # act has taken that of the second slice, not that of the first
    second = bench.side(1)
    second.start()  # does not wait
    begun = bench.seen[1].receive(0)
    assert begun is not None
    assert begun.stamp.incarnation == 1
    assert bench.seen[0].receive(0) is None
    bench.seen[0].release(lives[0])
    second.post.wait = stop  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        second.run()
    late = bench.seen[0].receive(0)
    assert late is not None
    assert late.stamp[:3] == Stamp(0, 1, 0)[:3]
    for here, there in zip(late.arrays, begun.arrays, strict=True):
        assert np.shape(here) == np.shape(there)
    for side in (first, second):
        side.close()


def stop() -> None:
    raise Stopped
