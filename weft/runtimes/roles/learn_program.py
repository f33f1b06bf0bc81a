"""What a learn side runs on each batch, compiled: messages put side by side, then all its fragments."""

from __future__ import annotations

from typing import Any, cast

import jax

from weft.core.types import Tree
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.flow import Flow, Flowed
from weft.runtimes.hosted.blocks import Block, as_message, seen
from weft.runtimes.hosted.programs import Recall
from weft.runtimes.hosted.segments import learn_from
from weft.runtimes.stage import Leg, States
from weft.runtimes.workers.batches import Batches

Joined = tuple[dict[Leg, list[Tree]], dict[str, Recall | None]]
"""Messages in one piece, and what is needed to find again what act left out of them."""


class LearnProgram:
    """Learns from a batch, or only keeps it in a store that is ``filling``.

    Without a store it is one program, and a batch is copied once. With a store it is two, and the second of them is the
    very program that one process has: XLA compiles a program in parts, and which multiplications and additions it joins
    depends on what else is in the part. A store copies the batch anyway, and is drawn from many times.
    """

    def __init__(self, flow: Flow, layout: Layout, batches: Batches, *, filling: bool = False) -> None:
        self.flow, self.batches, self.filling = flow, batches, filling
        shared, time = Spread.SHARED, Spread.SPLIT_TIME
        self._join: Any = None
        self._joint = False
        if flow.kept:
            own = Spread.SPLIT  # of several learners: each has its messages, along an axis in front, and its shard
            states: Any = layout.of_states(flow.names, flow.kept)
            gives = shared if states is shared else Flowed(states, *[cast("Any", shared)] * 3)
            self._joint = layout.replicas > 1
            self._join = layout.wrap(self._laid_out, (batches.spreads(), time), own)
            self._run: Any = layout.wrap(self._from_laid_out, (own, shared, own), gives, donate=(0,))
        else:
            self._run = layout.wrap(self._whole, (shared, shared, batches.spreads(), time), shared)

    def __call__(
        self, kept: States, others: States, batches: dict[Leg, tuple[Tree, ...]], noise: dict[str, Tree]
    ) -> Flowed:
        """``kept`` are the states of stores, which may be most of the memory: they are changed in place, and gone."""
        arguments = (batches, noise) if self._join is None else (self._join(batches, noise),)
        flowed: Flowed = self._run(kept, others, *arguments)
        return flowed

    def compile(self, kept: States, others: States) -> None:
        """Compile it, before the first batch has come."""
        arguments = self.batches.shapes()
        if self._join is not None:
            self._join.lower(*arguments).compile()
            self._run.lower(kept, others, jax.eval_shape(self._join, *arguments)).compile()
        else:
            self._run.lower(kept, others, *arguments).compile()

    def _joined(self, batches: dict[Leg, tuple[Tree, ...]], noise: dict[str, Tree]) -> Joined:
        messages: dict[Leg, list[Tree]] = {}
        recalls: dict[str, Recall | None] = {}
        for leg, blocks in batches.items():
            whole = self.batches.joined(leg, blocks)
            if isinstance(whole, Block) and leg[0] in noise:
                recalls[leg[0]] = Recall(seen(whole), noise[leg[0]])
            messages[leg] = [as_message(whole)]
        return messages, recalls

    def _laid_out(self, batches: dict[Leg, tuple[Tree, ...]], noise: dict[str, Tree]) -> Joined:
        joined = self._joined(batches, noise)
        return jax.tree.map(lambda x: x[None], joined) if self._joint else joined

    def _from_laid_out(self, kept: States, others: States, joined: Joined) -> Flowed:
        return self._learned(kept, others, *(jax.tree.map(lambda x: x[0], joined) if self._joint else joined))

    def _learned(
        self, kept: States, others: States, messages: dict[Leg, list[Tree]], recalls: dict[str, Recall | None]
    ) -> Flowed:
        return learn_from(self.flow, self.batches.acts, others | kept, messages, recalls, {}, filling=self.filling)

    def _whole(
        self, kept: States, others: States, batches: dict[Leg, tuple[Tree, ...]], noise: dict[str, Tree]
    ) -> Flowed:
        # A barrier: what follows is then compiled as it is where the unroll comes in one piece, as far as XLA lets it.
        return self._learned(kept, others, *jax.lax.optimization_barrier(self._joined(batches, noise)))
