"""The env side of a worker: a ring of slices of environments. Loads no JAX, unless its environment is in JAX.

While one slice waits for its actions, another is stepped, so that inference costs no time as long as it takes less
than stepping the other slices does (SRL, arXiv 2306.16688). Each slice writes its timesteps straight into its
channel's slot, and reads its actions where act has put them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.trees import tree_leaves, unflatten
from weft.core.types import Timestep
from weft.envs.protocol import HostEnv, HostFactory
from weft.runtimes.workers.counting.account import OfLane
from weft.runtimes.workers.side import SideContext
from weft.streams.channel import Reader, Stamp, Writer


@dataclass
class Slice:
    """One lane: its environments, and its two channels."""

    lane: int
    first: int
    rows: int
    timesteps: Writer
    actions: Reader
    env: HostEnv | None = None
    waiting: Timestep | None = None  # the first timestep, until there is room for it
    sequence: int = 0
    sent: Stamp = field(default_factory=Stamp)  # of the last timestep
    act_life: int = 0  # to which it was sent
    slots: dict[int, tuple[Any, Timestep]] = field(default_factory=dict)


class EnvSide:
    """Steps its slices whenever their actions come; ``run`` returns only by an exception."""

    def __init__(self, post: SideContext, make: HostFactory, seed: int, slices: list[Slice]) -> None:
        self.post, self.make, self.seed, self.slices = post, make, seed, slices
        post.saves = lambda: ({"snapshots": self.snapshots()}, [])

    def start(self, snapshots: dict[str, Any] | None = None) -> dict[str, list[int]]:
        """Make and reset all environments, or bring them back; by lane, the rows that could not be, exactly.

        Does not wait for room: a slot may still hold a timestep of an earlier life, which act takes only once it has
        heard of the other slices.
        """
        lost: dict[str, list[int]] = {}
        for part in self.slices:
            part.env = self.make(part.rows, self.seed, part.first)
            part.waiting = timestep_buffers(part.env.spec, (part.rows,))
            if snapshots is None:
                part.env.reset(part.waiting)
            else:
                lost[str(part.lane)] = part.env.restore(snapshots[str(part.lane)], part.waiting)
            self._send_first(part)
            self.post.tick()
        return lost

    def run(self) -> None:
        """Step, for ever; raises Stopped at the run's end and what the environment raises."""
        while True:
            stepped = False
            for part in self.slices:
                if part.waiting is not None:
                    stepped |= self._send_first(part)
                message = part.actions.receive(0)
                if message is None:
                    continue
                if (message.stamp.incarnation, message.stamp.sequence) == (self.post.incarnation, part.sequence - 1):
                    assert part.env is not None
                    part.env.step(message.arrays[0], self._out(part))
                    part.actions.release(message)
                    self._send(part, message.stamp.tag)
                else:  # meant for a predecessor that died
                    part.actions.release(message)
                self.post.tick()
                stepped = True
            if not stepped:
                self.post.wait()
                for part in self.slices:
                    self._send_again(part)

    def snapshots(self) -> dict[str, Any]:
        """What every slice needs to be brought back, by lane. Only while all of them wait for actions."""
        return {str(part.lane): part.env.snapshot() for part in self.slices if part.env is not None}

    def close(self) -> None:
        """Close the environments; may be called twice."""
        for part in self.slices:
            if part.env is not None:
                part.env.close()
                part.env = None

    def _out(self, part: Slice) -> Timestep:
        """The slot that the next timestep is written into; act has released it: it has sent an action since."""
        while (arrays := part.timesteps.reserve(0)) is None:
            self.post.wait()
        known = part.slots.get(id(arrays))
        if known is None:  # the tree is built once for each slot
            assert part.env is not None
            like = timestep_buffers(part.env.spec, (part.rows,))
            known = part.slots[id(arrays)] = (arrays, unflatten(like, arrays))
        return known[1]

    def _send_first(self, part: Slice) -> bool:
        """Send what the slice began with, if there is room; whether there was."""
        arrays = part.timesteps.reserve(0)
        if arrays is None:
            return False
        for place, leaf in zip(arrays, tree_leaves(part.waiting), strict=True):
            np.copyto(place, leaf)
        part.waiting = None
        self._send(part)
        return True

    def _send(self, part: Slice, by: int = -1) -> None:
        """``by``: which life of act has sent the action that this follows from; -1 after a reset."""
        part.sent = Stamp(part.lane, self.post.incarnation, part.sequence, 0, part.rows, by)
        part.act_life = self._act_life(part)
        part.timesteps.commit(part.sent)
        part.sequence += 1

    def _send_again(self, part: Slice) -> None:
        """Where act died: it may have taken the last timestep with it. The slot still holds what was written there."""
        if part.waiting is None and part.act_life != self._act_life(part) and part.timesteps.reserve(0) is not None:
            part.act_life = self._act_life(part)
            part.timesteps.commit(part.sent)

    def _act_life(self, part: Slice) -> int:
        return int(self.post.account.lanes[part.lane][OfLane.ACT_LIFE])
