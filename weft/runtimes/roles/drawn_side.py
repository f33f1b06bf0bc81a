"""A learner whose batches a store in another side draws: it learns from each as it comes, and tells the store of it.

Shards of a store take turns. Several learners are one program over all their devices: each has shards of its own, which
draw its part of every batch, and gradients are averaged by JAX's collectives. Params are published, and the launcher is
told, when as many batches were learned from as follow one unroll: as often as where the store is beside it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from weft.core.types import Metrics, Tree
from weft.graph.store import calls_for_each_unroll
from weft.runtimes.actors import publishers_of
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.flow import Flow, kept_where
from weft.runtimes.hosted.segments import learn_from
from weft.runtimes.loop.bad_steps import keep_batch
from weft.runtimes.stage import Finite, States
from weft.runtimes.workers.ahead import Ahead
from weft.runtimes.workers.counting.account import OfSide
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved
from weft.runtimes.workers.wires import WireReader, WireWriter
from weft.streams.channel import Message

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class _Learned(NamedTuple):
    """What some learn calls gave, ``[K]`` each; of a map before it that gives several messages, a list of such."""

    metrics: list[Metrics]
    finite: list[Finite]
    told: Tree  # for the store; () where nothing is


class DrawnSide:
    """One learner of ``layout.replicas``, with the maps that it absorbs; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task, self._side = task.context(side), task, side
        graph = task.schemas.graph_of(side)
        self.layout = Layout(task.learner_devices)
        self.flow = Flow(graph, side.fragments)
        (self.name,) = [name for name in publishers_of(graph) if name in side.fragments]
        into, outof = task.blueprint.into(side.index), task.blueprint.out_of(side.index)
        self._readers = [
            WireReader(w, task.reader(w, side), task.account, side.index, task.life) for w in into if w.drawn
        ]
        self._form = task.schemas.form(self._readers[0].wire)
        self._leg = (self._readers[0].wire.source, self._readers[0].wire.stream)
        self._back = {  # by the side of the store
            w.readers[0]: WireWriter(w, task.writer(w), task.account, task.life) for w in outof if w.feedback
        }
        self.publisher = task.publisher(side, self.name) if side.rank == 0 else None
        self._calls = calls_for_each_unroll(task.schemas.graph)
        self._in_order = task.blueprint.synchrony.in_order
        self._to_the_limit = self._in_order or len(task.blueprint.publishers) == 1
        shared, own = Spread.SHARED, Spread.SPLIT
        gives: Any = (shared, _Learned(shared, shared, own))  # type: ignore[arg-type]
        self._learn_from = self.layout.wrap(self._traced, (shared, own), gives if self._joint else shared)
        self._ahead: Ahead | None = None  # the program, while it is being compiled
        self._turn = 0
        self.states: States = {}
        self.version = 0
        self._metrics: list[Metrics] = []  # of the calls that were not told of yet
        self._finite: list[Finite] = []
        self._lags: dict[int, int] = {}  # of the newest unroll that its store had when it drew
        self._seconds = 0.0
        self.context.saves = self._saved

    @property
    def _joint(self) -> bool:
        return self.layout.replicas > 1

    def _traced(self, states: States, batches: Tree) -> tuple[States, _Learned]:
        """Learn from batches, ``[K, ...]``; of several learners they have an axis in front, along which they lie."""

        def once(states: States, batch: Tree) -> tuple[States, _Learned]:
            flowed = learn_from(self.flow, {}, states, {self._leg: [batch]}, {}, {})
            (told,) = [found[-1] for leg, found in flowed.out.items() if leg[0] == self.name] or [()]
            return flowed.states, _Learned(flowed.metrics[self.name], flowed.finite[self.name], told)

        if not self._joint:
            return jax.lax.scan(once, states, jax.lax.optimization_barrier(batches))
        mine = jax.tree.map(lambda x: x[0], batches)
        states, made = jax.lax.scan(once, states, jax.lax.optimization_barrier(mine))
        return states, made._replace(told=jax.tree.map(lambda x: x[None], made.told))

    def start(self) -> dict[str, Any]:
        """Begin from nothing, or from saved states; publishes the params."""
        init = self.layout.wrap(self.flow.init, (Spread.SHARED,), Spread.SHARED)
        seed = np.int32(self._task.body["seed"])
        saved = self._task.saved_states(self.flow.names)
        if saved is None:
            self.states = init(seed)
        else:
            shapes = jax.eval_shape(init, seed)
            self.states = self.layout.replicated({n: from_words(saved[n], shapes[n]) for n in self.flow.names})
        self.version = int(np.asarray(self.states[self.name].step))
        self.context.words[OfSide.JOINT] = 0
        self._publish()
        if not self._joint:  # one program of several learners begins when all of them are there
            self._ahead = Ahead(lambda: self._learn_from.lower(self.states, self._form.schema).compile())  # type: ignore[attr-defined]
        return {}

    def run(self) -> None:
        """Learn, for ever; raises Stopped at the run's end."""
        while True:
            # In order, nothing begins beyond the limit; what has begun before is learned from to its end.
            found = self._next() if self.version < self.context.limit or self._in_order else None
            if found is None:
                self.context.wait()
            else:
                self._learn(*found)
                self.context.tick()

    def close(self) -> None:
        """Nothing to free."""

    def _next(self) -> tuple[WireReader, Message] | None:
        """The next batch of the first shard in turn that has one."""
        for _ in self._readers:
            reader = self._readers[self._turn]
            self._turn = (self._turn + 1) % len(self._readers)
            message = reader.receive()
            if message is not None:
                return reader, message
        return None

    def _saved(self) -> Saved | None:
        """The states of its fragments, keys as their words."""
        if self.version < self.context.limit and self._to_the_limit:
            return None
        words = {name: to_words(state) for name, state in self.states.items()}
        states = [[name, len(leaves)] for name, leaves in words.items()]
        return {"states": states}, [leaf for leaves in words.values() for leaf in leaves]

    def _learn(self, reader: WireReader, message: Message) -> None:
        if self._ahead is not None:
            self._ahead.wait()
            self._ahead = None
        began = time.perf_counter()
        batches = self._form.unflatten(message.arrays)
        lag = max(0, self.version - message.stamp.version)  # below 0: of params that died with their learner
        self._lags[lag] = self._lags.get(lag, 0) + 1
        joint = int(self._joint)
        self.context.words[OfSide.JOINT] += joint  # it is not to blame for the time that it waits for the others
        lying = jax.tree.map(lambda x: self.layout.of_mine(x[None]), batches) if joint else batches
        states, made = self._learn_from(self.states, lying)
        jax.block_until_ready(states)
        self.context.words[OfSide.JOINT] += joint
        before, self.states = self.states, dict(states)
        self.version += reader.wire.batches * len(made.metrics)
        finite: list[Finite] = jax.device_get(made.finite)
        if not all(check.learned.all() for check in finite):
            keep_batch(self._task.inspect, self.version, batches)
            self.states[self.name] = kept_where(False, self.states[self.name], before[self.name])
        self._tell_store(reader, message, made.told)
        self._metrics += made.metrics
        self._finite += finite
        whole = self.version % self._calls == 0
        if whole:
            self._publish()  # where nothing was learned, the params of before: others wait for the version
        reader.take(message, None, self.version)  # not before: releasing a slot may let act start its next unroll
        self._seconds += time.perf_counter() - began
        if whole:
            self._tell_launcher()

    def _tell_store(self, reader: WireReader, message: Message, told: Tree) -> None:
        """What the algorithm says of batches, to the shard that drew them, with the life of the shard that did."""
        if not self._back:
            return
        writer = self._back[reader.wire.writer]
        while (places := writer.reserve()) is None:
            self.context.wait()
        for place, leaf in zip(places, jax.tree.leaves(told), strict=True):
            np.copyto(place, np.asarray(leaf.addressable_shards[0].data)[0] if self._joint else np.asarray(leaf))
        writer.commit(self.version, count=int(np.prod(places[0].shape[:2])), tag=message.stamp.incarnation)

    def _tell_launcher(self) -> None:
        entries, finite, seconds = jax.device_get(self._metrics), self._finite, self._seconds
        self._metrics, self._finite, self._seconds = [], [], 0.0
        body = {
            "fragment": self.name,
            "version": self.version,
            "calls": sum(check.learned.size for check in finite),
            "metrics": {key: float(np.mean([entry[key] for entry in entries])) for key in entries[0]},
            "learned": all(bool(check.learned.all()) for check in finite),
            "rewards": all(bool(check.rewards.all()) for check in finite),
            "seconds": seconds,
            "lags": sorted(self._lags.items()),
        }
        self._lags = {}
        if self._side.rank == 0:
            self.context.link.say("learned", body)

    def _publish(self) -> None:
        if self.publisher is not None:
            self.publisher.publish(self.flow.params(self.states, self.name), self.version)
