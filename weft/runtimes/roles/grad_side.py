"""The grad side of a worker: gradients of its own lanes' messages, sent to the one apply that owns the params.

A gradient carries its unrolls' samples over to apply, which counts them as trained. The unrolls are released before
the gradient is sent, so that no life computes a second gradient of them; a life that was killed in between has lost
them, and its next finds that by counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weft.core.types import Array, Tree
from weft.runtimes.flow import Flow
from weft.runtimes.hosted.blocks import Block, as_message, seen
from weft.runtimes.stage import Leg, States
from weft.runtimes.workers.batches import Batches
from weft.runtimes.workers.counting.account import Fate
from weft.runtimes.workers.counting.ledger import taken_and_not_sent
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.wires import WireWriter

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class GradSide:
    """Computes a gradient for each batch of its lanes; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task = task.context(side), task
        graph = task.schemas.graph_of(side)
        self.flow = Flow(graph, side.fragments)
        self.name = side.fragments[-1]
        self.weights = task.weights(side, self.name)
        self.batches = Batches(task, side, newest=lambda: self.weights.published)
        (wire,) = [w for w in task.blueprint.out_of(side.index) if w.samples]
        if task.life:
            self.context.words[Fate.DIED] += taken_and_not_sent(task.account, task.blueprint, side)
        self.writer = WireWriter(wire, task.writer(wire), task.account, task.life)
        self._leg: Leg = (wire.source, wire.stream)
        self._params_leg: Leg = task.params_leg(self.name)
        self._synchrony = task.blueprint.synchrony
        self._structure = jax.tree.structure(task.schemas.form(task.params_wire(side, self.name)).schema)
        self._grad = jax.jit(self._traced)
        self.states: States = {}
        self.context.saves = self._saved

    def _traced(
        self, states: States, leaves: tuple[Array, ...], batches: dict[Leg, tuple[Tree, ...]], noise: dict[str, Tree]
    ) -> tuple[States, list[Tree]]:
        messages: dict[Leg, list[Tree]] = {}
        for leg, blocks in batches.items():
            whole = self.batches.joined(leg, blocks)
            message = as_message(whole)
            if isinstance(whole, Block) and leg[0] in noise:
                extras = self.batches.acts[leg[0]].extras(leaves, whole.carry, seen(whole), noise[leg[0]])
                message = message._replace(extras=extras)
            messages[leg] = [message]
        messages = jax.lax.optimization_barrier(messages)
        newest = {self._params_leg: jax.tree.unflatten(self._structure, leaves)}
        flowed = self.flow.run(states, messages, newest)
        return flowed.states, flowed.out[self._leg]

    def start(self) -> dict[str, Any]:
        """Fresh states of the maps that it absorbs, or saved ones."""
        self.states = jax.jit(self.flow.init)(np.int32(self._task.body["seed"]))
        saved = self._task.saved_states(self.flow.names)
        if saved is not None:
            self.states = jax.device_put({n: from_words(saved[n], self.states[n]) for n in self.flow.names})
        return {}

    def run(self) -> None:
        """Compute gradients, for ever; raises Stopped at the run's end."""
        while True:
            complete = False
            while not complete:
                self.weights.refresh()
                if self.weights.version >= 0:
                    # By what is published, and not by what this side has seen: act may have seen more by now.
                    complete = self.batches.collect(self.weights.published)
                if not complete:
                    self.context.wait()
            self.weights.refresh()
            while self._synchrony.one_params and self.weights.version < self.batches.oldest:
                if not self.weights.refresh():
                    self.context.wait()
            self._compute()
            self.context.tick()

    def close(self) -> None:
        """Nothing to free."""

    def _compute(self) -> None:
        batches, noise = self.batches.messages(), self.batches.noise()
        states, gradients = self._grad(self.states, self.weights.leaves, batches, noise)
        self._place(gradients[0])
        self.states = states
        oldest = self.batches.oldest
        self.batches.trained(oldest + len(gradients), count=False)  # apply counts what it applies
        if len(gradients) > 1:  # a map of its own side gave several for one
            self.context.words[Fate.ADDED] += (len(gradients) - 1) * self.writer.wire.samples
        self.writer.commit(oldest)
        for message in gradients[1:]:
            self._place(message)
            self.writer.commit(oldest)

    def _place(self, message: Tree) -> None:
        """Write a gradient where it leaves; waits for room."""
        leaves: list[Any] = jax.tree.leaves(message)
        while (places := self.writer.reserve()) is None:
            self.context.wait()
        for place, leaf in zip(places, leaves, strict=True):
            np.copyto(place, np.asarray(leaf))

    def _saved(self) -> Saved | None:
        words = {name: to_words(state) for name, state in self.states.items()}
        states = [[name, len(leaves)] for name, leaves in words.items()] if self._task.side_rank(self.name) == 0 else []
        return {"states": states}, [leaf for leaves in words.values() for leaf in leaves] if states else []
