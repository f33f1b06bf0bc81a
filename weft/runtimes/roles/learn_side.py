"""The learn side of a worker: collects a batch, learns from it, publishes the params, tells the launcher.

Several learners are one program over all their devices: each eats its own lanes' messages, and gradients are averaged
by JAX's collectives.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weft.core.replicas import mean_over_replicas
from weft.core.types import Tree
from weft.runtimes.actors import publishers_of
from weft.runtimes.compiled.engine import mean_of
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.flow import Flow, Flowed, kept_where
from weft.runtimes.loop.bad_steps import keep_batch
from weft.runtimes.roles.learn_program import LearnProgram
from weft.runtimes.stage import States
from weft.runtimes.workers.ahead import Ahead
from weft.runtimes.workers.batches import Batches
from weft.runtimes.workers.brought import pays
from weft.runtimes.workers.counting.account import Fate, OfSide
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.blueprint import Side
from weft.runtimes.workers.side import Saved

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task


class LearnSide:
    """One learner of ``layout.replicas``, with the maps that it absorbs; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self.rank, self._task, self._side = task.context(side), side.rank, task, side
        graph = task.schemas.graph_of(side)
        self.layout = Layout(task.learner_devices)
        self.flow = Flow(graph, side.fragments, self.layout.replicas)  # with a shard of each store
        (self.name,) = [name for name in publishers_of(graph) if name in side.fragments]
        self.batches = Batches(task, side, bring=pays(self.layout.replicas))
        self.publisher = task.publisher(side, self.name) if side.rank == 0 else None
        self._learn_from = LearnProgram(self.flow, self.layout, self.batches)
        self._fill = LearnProgram(self.flow, self.layout, self.batches, filling=True)
        self._filling = 0  # batches from now on that fill a store, and that nothing is learned from
        self._mean = self.layout.wrap(mean_over_replicas, (Spread.SPLIT,), Spread.SHARED)
        self.states: States = {}
        self._ahead: Ahead | None = None  # the program, while it is being compiled
        self.version = 0
        self._in_order = task.blueprint.synchrony.in_order
        # One of several learners need not have come as far as the others when it is saved.
        self._to_the_limit = self._in_order or len(task.blueprint.publishers) == 1
        self.context.saves = self._saved

    def _parted(self) -> tuple[States, States]:
        """The states of stores, which a program is given to change, and the others."""
        kept = {name: self.states[name] for name in self.flow.kept}
        return kept, {name: state for name, state in self.states.items() if name not in kept}

    def start(self) -> dict[str, Any]:
        """Begin from nothing, or from saved states; publishes the params."""
        seed = np.int32(self._task.body["seed"])
        indices: Any = np.arange(self.layout.replicas, dtype=np.int32)
        if self.layout.replicas > 1:
            indices = self.layout.of_mine(indices[self.rank : self.rank + 1], Spread.SPLIT)
        spread = self.layout.of_states(self.flow.names, self.flow.kept)
        init = self.layout.wrap_init(lambda seed, indices: self.flow.init(seed), spread)
        saved = self._task.saved_states(map(self._side.state_name, self.flow.names))
        if saved is None:
            self.states = init(seed, indices)
        else:
            shapes = jax.eval_shape(init, seed, indices)
            alike = [n for n in self.flow.names if n not in self._side.shards]
            self.states = self.layout.replicated({n: from_words(saved[n], shapes[n]) for n in alike})
            for name in self._side.shards:
                mine = [self.layout.of_mine(leaf[None]) for leaf in saved[self._side.state_name(name)]]
                self.states[name] = jax.jit(lambda leaves, name=name: from_words(leaves, shapes[name]))(mine)
        self.version = int(np.asarray(self.states[self.name].step))
        self._filling = self.flow.waits({name: self._own(self.states[name]) for name in self.flow.kept})
        self.context.words[OfSide.JOINT] = 0
        self._publish()
        if self.layout.replicas == 1:  # one program of several learners begins when all of them are there
            self._ahead = Ahead(self._compile)
        return {}

    def _compile(self) -> None:
        """Compile the program while environments make the first batch."""
        self._learn_from.compile(*self._parted())

    def run(self) -> None:
        """Learn, for ever; raises Stopped at the run's end."""
        context = self.context
        while True:
            complete = False
            while not complete:
                # In order, nothing begins beyond the limit; what has begun before is learned from to its end.
                if self.version < context.limit or self._in_order:
                    complete = self.batches.collect(self.version)
                if not complete:
                    context.wait()
            self._learn()
            context.tick()

    def close(self) -> None:
        """Nothing to free."""

    def _saved(self) -> Saved | None:
        """The states of its fragments, keys as their words; of the first learner alone, but for shards of stores."""
        if self.version < self.context.limit and self._to_the_limit:
            return None
        words = {
            name: to_words(s) for name, s in self.states.items() if name not in self._side.shards and not self.rank
        }
        for name in self._side.shards:
            words[self._side.state_name(name)] = to_words(jax.tree.map(lambda x: x[0], self._own(self.states[name])))
        states = [[name, len(leaves)] for name, leaves in words.items()]
        return {"states": states}, [leaf for leaves in words.values() for leaf in leaves]

    def _own(self, held: Tree) -> Tree:
        """What this process has of the state of a store, of which each learner has a shard."""
        return jax.tree.map(lambda x: x.addressable_shards[0].data, held) if self.layout.replicas > 1 else held

    def _learn(self) -> None:
        if self._ahead is not None:
            self._ahead.wait()
            self._ahead = None
        began = time.perf_counter()
        self.batches.count_lags(self.version)
        batches, noise = self.batches.messages(self._agreed), self.batches.noise()
        if self.layout.replicas > 1:
            batches = jax.tree.map(self.layout.of_mine, batches, self.batches.leaf_spreads(batches))
            noise = jax.tree.map(lambda x: self.layout.of_mine(np.asarray(x), Spread.SPLIT_TIME), noise)
        joint = int(self.layout.replicas > 1)
        self.context.words[OfSide.JOINT] += joint  # it is not to blame for the time that it waits for the others
        filling = self._filling > 0
        flowed: Flowed = (self._fill if filling else self._learn_from)(*self._parted(), batches, noise)
        self.batches.look_ahead()
        if filling:
            jax.block_until_ready(flowed.states)
            self.context.words[OfSide.JOINT] += joint
            self._filled(flowed)
            return
        entries, checks = flowed.metrics[self.name], flowed.finite[self.name]
        calls = len(entries) * self.flow.repeats[self.name]
        figures = {name: float(np.asarray(value)) for name, value in mean_of(entries).items()}
        learned = all(bool(np.asarray(ok.learned)) for ok in checks)
        rewards = all(bool(np.asarray(ok.rewards)) for ok in checks)
        jax.block_until_ready(flowed.states)
        self.context.words[OfSide.JOINT] += joint
        before, self.states = self.states, dict(flowed.states)
        self.version += calls
        if not learned:
            keep_batch(self._task.inspect, self.version, self.batches.messages())
            self.states[self.name] = kept_where(False, self.states[self.name], before[self.name])
        self._publish()  # where nothing was learned, the params of before: others wait for the version
        more = (len(entries) - 1) * self.batches.samples  # a map of its own side gave several for one
        if more:
            self.context.words[Fate.ADDED] += more
            self.context.words[Fate.TRAINED] += more
        self.batches.trained(self.version)  # not before: releasing a slot lets act start its next unroll
        self._tell_figures(flowed)
        if self.rank == 0:
            body = {
                "fragment": self.name,
                "version": self.version,
                "calls": calls,
                "metrics": figures,
                "learned": learned,
                "rewards": rewards,
                "seconds": time.perf_counter() - began,
                "lags": self.batches.take_lags(),
            }
            self.context.link.say("learned", body)

    def _filled(self, flowed: Flowed) -> None:
        """A store has kept the batch, and nothing was drawn: the params stay as they are."""
        self.states, self._filling = dict(flowed.states), self._filling - 1
        self._tell_figures(flowed)
        self.batches.trained(self.version)

    def _tell_figures(self, flowed: Flowed) -> None:
        """What fragments of the side that do not learn have measured."""
        found = {name: entries[-1] for name, entries in flowed.metrics.items() if name != self.name}
        if found and self.rank == 0:
            figures = {f"{name}/{key}": float(np.asarray(x)) for name, all_ in found.items() for key, x in all_.items()}
            self.context.link.say("figures", figures)

    def _agreed(self, mine: bool) -> bool:
        """Whether it is so for all learners, which must give their program messages of one form. Waits for them."""
        if self.layout.replicas == 1:
            return mine
        share = self._mean(self.layout.of_mine(np.array([mine], np.float32), Spread.SPLIT))
        return bool(np.asarray(share)[0] == 1.0)

    def _publish(self) -> None:
        if self.publisher is not None:
            self.publisher.publish(self.flow.params(self.states, self.name), self.version)
