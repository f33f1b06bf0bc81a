"""Where a lane's unrolls leave act: slots of a channel, each laid out as a block."""

from __future__ import annotations

from typing import Any

import jax

from weft.core.specs import EnvSpec
from weft.core.types import Tree
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.synchrony import Synchrony
from weft.runtimes.workers.counting.account import Account, OfWire
from weft.runtimes.workers.layout.blueprint import Lane, Wire
from weft.runtimes.workers.side import SideContext
from weft.runtimes.workers.weights import Weights
from weft.runtimes.workers.wires import WireWriter
from weft.streams.channel import Writer


class UnrollWriter(WireWriter):
    """A lane's unrolls, one slot at a time, and what the account knows of them.

    It gives up, and counts, what an earlier life had half built when it died.
    """

    def __init__(
        self, wire: Wire, lane: Lane, writer: Writer, schema: Tree, spec: EnvSpec, account: Account, life: int
    ) -> None:
        super().__init__(wire, writer, account, life)
        self.lane = lane
        self._structure, self._spec = jax.tree.structure(schema), spec
        self._rows_of_slot = int(schema.bootstrap.shape[0]) + 1
        self._slots: dict[int, tuple[Any, UnrollBuffer]] = {}
        half_built = self.words[OfWire.PRODUCED] - self.words[OfWire.GIVEN_UP] - self.sequence * wire.samples
        self.words[OfWire.GIVEN_UP] += half_built

    @property
    def produced(self) -> int:
        """Environment steps that this lane has made, for each of its environments."""
        return int(self.words[OfWire.PRODUCED]) // self.lane.rows

    def buffer(self) -> UnrollBuffer | None:
        """The buffer of the next free slot; None where the reader holds them all. The same until it is committed."""
        arrays = self.reserve()
        if arrays is None:
            return None
        known = self._slots.get(id(arrays))
        if known is None:
            block: Block = jax.tree.unflatten(self._structure, arrays)
            known = self._slots[id(arrays)] = (arrays, UnrollBuffer(self._spec, block, self.lane.rows))
        return known[1]

    def where(self, t: int) -> int:
        """Row t of the unroll that is being built, as a number that environments can be told; never 0."""
        return 1 + int(self.writer.committed) * self._rows_of_slot + t

    def leaves_at(self, where: int) -> list[Any]:
        """What environments have written into a row, by its number: a timestep's leaves, but final observations."""
        place, t = divmod(where - 1, self._rows_of_slot)
        block: Block = jax.tree.unflatten(self._structure, self.writer.arrays_at(place))
        return [leaf[t] for leaf in jax.tree.leaves(block.steps)]

    def begin_unroll(self, weights: Weights, synchrony: Synchrony, context: SideContext) -> UnrollBuffer | None:
        """Room for the next unroll, with params to make it, where synchrony lets it begin; None else. Does not wait."""
        weights.refresh()
        if not synchrony.may_begin(weights.version, self.after, context.limit):
            return None
        buffer = self.buffer()
        if buffer is not None:
            weights.refresh()  # the slot came back after an update: take the params of that update
            if not synchrony.may_begin(weights.version, self.after, context.limit):
                return None  # the slot came back with the version that follows, which is not here yet
            self.begin(weights.version)
        return buffer

    def count(self, steps: int) -> None:
        """Steps of each environment were recorded in the unroll that is being built."""
        self.words[OfWire.PRODUCED] += steps * self.lane.rows

    def give_up(self, steps: int) -> None:
        """Steps of each environment that were counted will never be sent."""
        self.words[OfWire.GIVEN_UP] += steps * self.lane.rows
