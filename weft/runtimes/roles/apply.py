"""The apply side of a worker: the one owner of the params. Gradients come in, params go out.

In lockstep it takes one gradient of each grad side, averages them and makes one update, as replicas do. Otherwise it
makes an update of each as it comes (A3C, parameter servers), and drops those that are too many versions behind.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from weft.core.types import TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.runtimes.roles.grad import FLAGS
from weft.runtimes.workers.counting.account import OfLearner, OfRun
from weft.runtimes.workers.gradients import GradientReader
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.side import SideContext
from weft.runtimes.workers.weights import publish
from weft.streams.channel import Message, Writer


class ApplySide:
    """Applies gradients; ``run`` returns only by an exception."""

    def __init__(
        self,
        post: SideContext,
        algorithm: Algorithm,
        inlets: list[GradientReader],
        params: Writer,
        shapes: Tree,
        names: tuple[str, ...],
        *,
        seed: int,
        lockstep: bool,
        max_lag: int,
    ) -> None:
        self.post, self.algorithm, self.inlets, self.params, self.names = post, algorithm, inlets, params, names
        self.seed, self.lockstep, self.max_lag = seed, lockstep, max_lag
        self._structure = jax.tree.structure(shapes)
        self.train: TrainState | None = None
        self.version = 0
        post.saves = lambda: ({}, self.saved()) if self.version >= post.limit else None
        self._turn = 0
        self._lags: dict[int, int] = {}

        def mean_and_apply(train: TrainState, *messages: Tree) -> tuple[TrainState, Any]:
            gradients, figures = jax.tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *messages)
            return algorithm.apply(train, gradients), figures

        self._apply = jax.jit(mean_and_apply, donate_argnums=(0,))
        self._needed = len(inlets) if lockstep else 1

    def start(self, leaves: list[np.ndarray[Any, Any]] | None = None) -> None:
        """Begin from nothing, or from a saved state's leaves; publishes the params."""
        from weft.core.keys import fragment_key

        init = jax.jit(lambda seed: self.algorithm.init(fragment_key(seed, "learn")))
        if leaves is None:
            self.train = init(np.int32(self.seed))
        else:
            shapes = jax.eval_shape(init, jax.ShapeDtypeStruct((), np.int32))
            self.train = jax.device_put(from_words(leaves, shapes))
        assert self.train is not None
        self.version = int(np.asarray(self.train.step))
        self._publish()

    def run(self) -> None:
        """Apply, for ever; raises Stopped at the run's end."""
        held: list[tuple[GradientReader, Message]] = []
        while True:
            while len(held) < self._needed:
                found = self._next(len(held)) if self.version < self.post.limit else None
                if found is None:
                    self.post.wait()
                else:
                    held.append(found)
            self._update(held)
            held = []
            self.post.tick()

    def saved(self) -> list[np.ndarray[Any, Any]]:
        """The leaves of ``(train, ())``, keys as their words."""
        return to_words(self.train)

    def _next(self, have: int) -> tuple[GradientReader, Message] | None:
        """In lockstep the next grad side's gradient; else whichever comes, if it is new enough."""
        if self.lockstep:
            message = self.inlets[have].receive()
            return None if message is None else (self.inlets[have], message)
        for _ in self.inlets:
            inlet = self.inlets[self._turn]
            self._turn = (self._turn + 1) % len(self.inlets)
            message = inlet.receive()
            if message is None:
                continue
            lag = self.version - message.stamp.version
            if 0 <= lag <= self.max_lag:
                return inlet, message
            inlet.done(message, OfLearner.STALE if lag > 0 else OfLearner.DIED)
        return None

    def _update(self, held: list[tuple[GradientReader, Message]]) -> None:
        assert self.train is not None
        began = time.perf_counter()
        messages = [jax.tree.unflatten(self._structure, message.arrays) for _, message in held]
        figures = np.mean([message[1] for message in messages], axis=0)
        learned, rewards = figures[-len(FLAGS)] == 1.0, figures[-1] == 1.0
        if learned:
            self.train, _ = self._apply(self.train, *messages)
            jax.block_until_ready(self.train)
        self.version += 1
        if learned:
            self._publish()
        for inlet, message in held:
            lag = self.version - 1 - message.stamp.version
            self._lags[lag] = self._lags.get(lag, 0) + 1
            inlet.done(message, OfLearner.TRAINED)
        lags, self._lags = self._lags, {}
        metrics = dict(zip(self.names, map(float, figures), strict=False))
        body = {
            "version": self.version,
            "metrics": metrics,
            "learned": bool(learned),
            "rewards": bool(rewards),
            "seconds": time.perf_counter() - began,
            "lags": sorted(lags.items()),
        }
        self.post.link.say("learned", body)

    def _publish(self) -> None:
        assert self.train is not None
        publish(self.params, self.train.params, self.version)
        self.post.account.run[OfRun.VERSION] = self.version
