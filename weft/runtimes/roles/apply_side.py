"""The apply side of a worker: the one owner of the params. Gradients come in, params go out.

In lockstep it takes one gradient of each that sends some, averages them and makes one update, as replicas do. Otherwise
it makes an update of each as it comes (A3C, parameter servers), and drops those that are too many versions behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weft.core.keys import fragment_key
from weft.core.types import Gradients, TrainState
from weft.graph.algorithm import Algorithm
from weft.runtimes.flow import all_finite
from weft.runtimes.loop.bad_steps import keep_batch
from weft.runtimes.workers.counting.account import Fate
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.wires import WireReader
from weft.streams.channel import Message

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class ApplySide:
    """Applies gradients; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task = task.context(side), task
        (self.name,) = side.fragments
        self.algorithm: Algorithm = task.schemas.graph.fragment(self.name).code
        wires = [w for w in task.blueprint.into(side.index) if w.samples]
        self.readers = [WireReader(w, task.reader(w, side), task.account, side.index, task.life) for w in wires]
        self._form = task.schemas.form(wires[0])
        self.publisher = task.publisher(side, self.name)
        self.synchrony = task.blueprint.synchrony
        # The messages of one update: of each wire as many as a round has, or any one.
        self._round = [reader for reader in self.readers for _ in range(reader.wire.in_round)]
        self._needed = 1 if self.synchrony.each_gradient_counts else len(self._round)
        self.train: TrainState | None = None
        self.version = 0
        self.context.saves = self._saved
        self._turn, self._in_order = 0, self.synchrony.in_order
        self._to_the_limit = self._in_order or len(task.blueprint.publishers) == 1
        self._lags: dict[int, int] = {}

        def mean_and_apply(train: TrainState, *messages: Gradients) -> TrainState:
            gradients = jax.tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *(message.tree for message in messages))
            return self.algorithm.apply(train, gradients)

        self._apply = jax.jit(mean_and_apply)
        # By itself: within the update it would be compiled into other instructions, with other last bits.
        self._finite = jax.jit(all_finite)

    def start(self) -> dict[str, Any]:
        """Begin from nothing, or from a saved state; publishes the params."""
        key_name = self._task.schemas.graph.fragment(self.name).part_of or self.name
        init = jax.jit(lambda seed: self.algorithm.init(fragment_key(seed, key_name)))
        saved = self._task.saved_states((self.name,))
        if saved is None:
            self.train = init(np.int32(self._task.body["seed"]))
        else:
            shapes = jax.eval_shape(init, jax.ShapeDtypeStruct((), np.int32))
            self.train = jax.device_put(from_words(saved[self.name], shapes))
        assert self.train is not None
        self.version = int(np.asarray(self.train.step))
        self.publisher.publish(self.train.params, self.version)
        return {}

    def run(self) -> None:
        """Apply, for ever; raises Stopped at the run's end."""
        held: list[tuple[WireReader, Message]] = []
        while True:
            while len(held) < self._needed:
                found = self._next(len(held)) if self.version < self.context.limit or self._in_order else None
                if found is None:
                    self.context.wait()
                else:
                    held.append(found)
            self._update(held)
            held = []
            self.context.tick()

    def close(self) -> None:
        """Nothing to free."""

    def _saved(self) -> Saved | None:
        if self.version < self.context.limit and self._to_the_limit:
            return None
        words = to_words(self.train)
        return {"states": [[self.name, len(words)]]}, words

    def _next(self, have: int) -> tuple[WireReader, Message] | None:
        """The next gradient in order; or whichever comes, if it is new enough."""
        if not self.synchrony.each_gradient_counts:
            reader = self._round[have]
            message = reader.receive()
            return None if message is None else (reader, message)
        for _ in self.readers:
            reader = self.readers[self._turn]
            self._turn = (self._turn + 1) % len(self.readers)
            message = reader.receive()
            if message is None:
                continue
            lag = self.version - message.stamp.version
            if not self.synchrony.too_old(lag, reader.wire.max_lag):
                return reader, message
            reader.take(message, Fate.STALE if lag > 0 else Fate.DIED)
        return None

    def _update(self, held: list[tuple[WireReader, Message]]) -> None:
        assert self.train is not None
        began = time.perf_counter()
        messages: list[Gradients] = [self._form.unflatten(message.arrays) for _, message in held]
        learned = all(float(message.learned) == 1.0 for message in messages)
        rewards = all(float(message.rewards) == 1.0 for message in messages)
        metrics = {name: float(np.mean([m.metrics[name] for m in messages])) for name in messages[0].metrics}
        if learned:
            new = self._apply(self.train, *messages)
            learned = bool(np.asarray(self._finite(new.params)))
        if learned:
            self.train = new
        else:  # a version of its own all the same, with the params of before: others wait for it
            keep_batch(self._task.inspect, self.version + 1, messages)
            self.train = self.train._replace(step=self.train.step + 1)
        self.version += 1
        self.publisher.publish(self.train.params, self.version)
        for reader, message in held:
            lag = self.version - 1 - message.stamp.version
            self._lags[lag] = self._lags.get(lag, 0) + 1
            reader.take(message, Fate.TRAINED, self.version)
        lags, self._lags = self._lags, {}
        body = {
            "fragment": self.name,
            "version": self.version,
            "calls": 1,
            "metrics": metrics,
            "learned": learned,
            "rewards": rewards,
            "seconds": time.perf_counter() - began,
            "lags": sorted(lags.items()),
        }
        self.context.link.say("learned", body)
