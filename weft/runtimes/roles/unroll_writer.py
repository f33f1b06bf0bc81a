"""Where a lane's unrolls leave act: slots of a channel, each laid out as a block."""

from __future__ import annotations

from typing import Any

import jax

from weft.core.specs import EnvSpec
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.workers.counting.account import Account, OfLane
from weft.runtimes.workers.layout.blueprint import Lane
from weft.streams.channel import Stamp, Writer


class UnrollWriter:
    """A lane's unrolls, one slot at a time, and what the account knows of them.

    Whatever an earlier incarnation had half built when it died is given up here, and counted.
    """

    def __init__(self, lane: Lane, writer: Writer, schema: Block, spec: EnvSpec, account: Account, life: int) -> None:
        self.lane, self.life = lane, life
        self._writer, self._schema, self._spec = writer, schema, spec
        self._structure = jax.tree.structure(schema)
        self._slots: dict[int, tuple[Any, UnrollBuffer]] = {}
        self._words = account.lanes[lane.index]
        self.steps = schema.bootstrap.shape[0] * lane.rows
        # A number whose unroll was never sent stays a gap; and a socket knows only what it has sent itself.
        self._earlier = max(int(self._words[OfLane.COMMITTED]) - writer.committed, 0)
        self._words[OfLane.COMMITTED] = self.sequence
        self._words[OfLane.BEGUN], self._words[OfLane.ACT_LIFE] = 0, life
        half_built = self._words[OfLane.PRODUCED] - self._words[OfLane.LOST] - self.sequence * self.steps
        self._words[OfLane.LOST] += half_built

    @property
    def sequence(self) -> int:
        """The number of the unroll that is being built, from 0; earlier incarnations' count."""
        return self._earlier + self._writer.committed

    @property
    def produced(self) -> int:
        """Environment steps that this lane has made, for each of its environments."""
        return int(self._words[OfLane.PRODUCED]) // self.lane.rows

    def reserve(self) -> UnrollBuffer | None:
        """The buffer of the next free slot; None where learn holds them all. The same until it is committed."""
        arrays = self._writer.reserve(0)
        if arrays is None:
            return None
        known = self._slots.get(id(arrays))
        if known is None:
            block: Block = jax.tree.unflatten(self._structure, arrays)
            known = self._slots[id(arrays)] = (arrays, UnrollBuffer(self._spec, block, self.lane.rows))
        return known[1]

    def begin(self, version: int) -> None:
        """The unroll begins now, with params of ``version``."""
        self._words[OfLane.BEGUN] = 1 + version

    def count(self, steps: int) -> None:
        """Steps of each environment were recorded in the unroll that is being built."""
        self._words[OfLane.PRODUCED] += steps * self.lane.rows

    def give_up(self, steps: int) -> None:
        """Steps of each environment that were counted will never be sent."""
        self._words[OfLane.LOST] += steps * self.lane.rows

    def commit(self, version: int) -> None:
        """Send the unroll; ``version`` is the oldest that acted in it."""
        stamp = Stamp(self.lane.index, self.life, self.sequence, version, self.steps)
        self._words[OfLane.BEGUN] = 0
        self._words[OfLane.COMMITTED] = stamp.sequence + 1
        self._writer.commit(stamp)
