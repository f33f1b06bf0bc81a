"""The pure fragments between unrolls and params, walked as one function: what a program, or a part of one, computes.

A role gives each of its fragments as a stage (``stage.py``). A ``Flow`` is some of a graph's stages in the order in
which messages pass them; what leaves it goes to the caller. In one process a flow is everything below act; in a worker
it is one side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import GraphError
from weft.core.keys import fragment_key
from weft.core.replicas import mean_over_replicas
from weft.core.types import Array, Metrics, TrainState, Tree
from weft.graph.graph import Graph
from weft.graph.stream import Delivery, Stream
from weft.runtimes.border import bordered
from weft.runtimes.packing import scan_packed
from weft.runtimes.shards import sharded
from weft.runtimes.stage import Finite, Leg, Stage, States, stage_of

SMALL_BYTES = 2**20
"""Bytes of a batch from a store whose learn calls are so short on an accelerator that two are one turn of the loop."""


class Flowed(NamedTuple):
    """What a flow made of the messages that it was given.

    What follows a store has one entry for all its draws (``Flow.repeats``): means, and whether all were finite.
    """

    states: States
    out: dict[Leg, list[Tree]]  # what leaves the flow
    metrics: dict[str, list[Metrics]]  # by the fragment that learned, a list of its calls
    finite: dict[str, list[Finite]]


class _Walk:
    """What is known in the middle of a walk through the stages."""

    def __init__(self, states: States, waiting: dict[Leg, list[Tree]]) -> None:
        self.states, self.waiting = states, waiting
        self.metrics: dict[str, list[Metrics]] = {}
        self.finite: dict[str, list[Finite]] = {}


class Flow:
    """The stages of ``names``, some of a graph's fragments, that take messages.

    Of several ``replicas`` in one program each has a shard of every store.
    """

    def __init__(self, graph: Graph, names: Iterable[str], replicas: int = 1) -> None:
        self.graph = graph
        wanted = set(names)
        self.names = tuple(n for n in graph.order() if n in wanted and not graph.fragment(n).role.every_step)
        self.stages: dict[str, Stage] = {n: stage_of(graph.fragment(n), graph) for n in self.names}
        if replicas > 1:
            self.stages |= {n: sharded(s, replicas) for n, s in self.stages.items() if s.draws is not None}
        self._maps_of_params = tuple(n for n in self.names if not message_inputs(graph, n))
        self.repeats = dict.fromkeys(self.names, 1)  # how often a fragment runs for each of its entries in ``Flowed``
        for name, stage in self.stages.items():
            if stage.draws is not None:
                self.repeats |= dict.fromkeys(self._after(name), stage.draws.times)

    def init(self, seed: Any) -> States:
        """Fresh states of all its fragments."""
        return self.init_pure(seed) | self.init_host(seed)

    def init_pure(self, seed: Array) -> States:
        """Fresh states of the pure ones; to be traced, where that is wanted."""
        return {name: self._fresh(seed, name) for name, stage in self.stages.items() if stage.pure}

    def init_host(self, seed: Array) -> States:
        """Fresh states of host code, in NumPy."""
        return {name: on_host(self._fresh(seed, name)) for name, stage in self.stages.items() if not stage.pure}

    def template(self) -> States:
        """The structure, shapes and dtypes of its states."""
        pure: States = jax.eval_shape(self.init_pure, jax.ShapeDtypeStruct((), jnp.int32))
        return pure | self.init_host(jnp.int32(0))

    def _fresh(self, seed: Array, name: str) -> Tree:
        return self.stages[name].init(fragment_key(seed, _key_name(self.graph, name)))

    def publish(self, states: States) -> tuple[States, dict[Leg, Tree]]:
        """The newest params of everything in the flow, through the maps that they pass; and the maps' new states."""
        states, newest = dict(states), {}
        for name, stage in self.stages.items():
            if stage.params is not None:
                for stream in self.graph.out_of(name):
                    if stream.delivery is Delivery.LATEST:
                        newest[name, stream.name] = stage.params(states[name])
        for name in self._maps_of_params:
            inputs = {s.name: newest[s.source, s.name] for s in self.graph.into(name) if (s.source, s.name) in newest}
            pure = self.stages[name].pure
            ran = self.stages[name].run(states[name], inputs if pure else on_host(inputs), {}, jnp.zeros(()))
            if not all(ran.messages.values()):
                raise GraphError(f"fragment {name!r} gave no params: whoever reads them would have none")
            states[name] = ran.state if pure else on_host(ran.state)
            newest |= {(name, port): messages[-1] for port, messages in ran.messages.items()}
        return states, newest

    def params(self, states: States, name: str) -> Tree:
        """What a fragment of the flow publishes in these states."""
        publishes = self.stages[name].params
        assert publishes is not None
        return publishes(states[name])

    def run(
        self,
        states: States,
        messages: Mapping[Leg, list[Tree]],
        newest: Mapping[Leg, Tree],
        given: Array | None = None,
        filling: bool = False,
    ) -> Flowed:
        """Take messages through the stages, each in turn. ``newest``: params that were published outside, or before.

        ``given`` is the sum of the rewards as the environments gave them; unless told, of those in ``messages``. While
        it is ``filling``, stores keep what they take and nothing is drawn (``waits`` says how long).
        """
        given = rewards_given(messages) if given is None else given
        walk = _Walk(dict(states), {leg: list(found) for leg, found in messages.items()})
        self._walk(self.names, walk, newest, given, filling)
        return Flowed(walk.states, walk.waiting, walk.metrics, walk.finite)

    def waits(self, states: States, seeds: int = 0) -> int:
        """How many unrolls, from now on, are only kept by a store: for these ``run`` is told that it is ``filling``.

        With ``seeds`` the states are of several, side by side; all of them wait equally long.
        """
        found = [
            (jax.vmap(stage.draws.waits) if seeds else stage.draws.waits)(states[name])
            for name, stage in self.stages.items()
            if stage.draws is not None
        ]
        return max((int(np.max(jax.device_get(wait))) for wait in found), default=0)

    @property
    def kept(self) -> tuple[str, ...]:
        """The fragments that keep what they take: their states may be large, and are given away to each run."""
        return tuple(name for name, stage in self.stages.items() if stage.draws is not None)

    def _walk(
        self, names: Iterable[str], walk: _Walk, newest: Mapping[Leg, Tree], given: Array, filling: bool = False
    ) -> None:
        """Run the stages of ``names`` on what is waiting for them."""
        for name in names:
            takes = message_inputs(self.graph, name)
            if not takes:  # a map of params
                continue
            queues = {s.name: walk.waiting.pop((s.source, s.name), []) for s in takes}
            made: dict[str, list[Tree]] = {}
            for k in range(min(map(len, queues.values()))):
                inputs = {port: queue[k] for port, queue in queues.items()}
                params = self._read(name, walk.states, newest)
                ran = self.stages[name].run(walk.states[name], inputs, params, given)
                walk.states[name] = ran.state
                for port, several in ran.messages.items():
                    made.setdefault(port, []).extend(several)
                if ran.metrics is not None:
                    walk.metrics.setdefault(name, []).append(ran.metrics)
                if ran.finite is not None:
                    walk.finite.setdefault(name, []).append(ran.finite)
                if self.stages[name].draws is not None and not filling:
                    self._draw(name, walk, newest, given)
            walk.waiting |= {(name, port): several for port, several in made.items()}

    def _draw(self, name: str, walk: _Walk, newest: Mapping[Leg, Tree], given: Array) -> None:
        """Draw from a store, and run what follows it in the flow, as often as it says.

        All of it is one scan. Where what follows is not in this flow, the messages that were drawn leave it.
        """
        draws = self.stages[name].draws
        assert draws is not None
        after = self._after(name)
        if not after:
            for _ in range(draws.times):
                walk.states[name], messages = draws.draw(walk.states[name])
                for port, message in messages.items():
                    walk.waiting.setdefault((name, port), []).append(message)
            return
        back = [(s.source, s.name) for s in self.graph.into(name) if s.feedback]
        inside = [name, *after]

        drawn = None if back else draws.ahead(walk.states[name])
        if drawn is not None:
            walk.states[name], drawn_messages = drawn[0], bordered(drawn[1])

        def once(
            states: States, messages: dict[str, Tree] | None
        ) -> tuple[States, tuple[dict[str, Metrics], dict[str, Finite]]]:
            held = states[name]
            if messages is None:
                held, messages = draws.draw(held)
            messages = bordered(messages)  # a store in a worker of its own draws in a program of its own
            part = _Walk({**walk.states, **states, name: held}, {(name, p): [m] for p, m in messages.items()})
            self._walk(after, part, newest, given)
            told = {leg[1]: part.waiting.pop(leg)[-1] for leg in back if leg in part.waiting}
            if told:
                part.states[name] = draws.tell(part.states[name], bordered(told))
            if part.waiting:
                ways = ", ".join(f"{stream!r} of {source!r}" for source, stream in part.waiting)
                raise GraphError(f"what follows {name!r} must stay in its group, and {ways} leaves it")
            found = {n: _mean(several) for n, several in part.metrics.items()}
            checks = {n: _all(several) for n, several in part.finite.items()}
            return {n: part.states[n] for n in inside}, jax.tree.map(lambda x: jnp.asarray(x)[None], (found, checks))

        begun = {n: walk.states[n] for n in inside}
        ahead = None if drawn is None else drawn_messages
        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(ahead)) // draws.times
        states, told = scan_packed(once, begun, ahead, draws.times, most_in_a_row=2 if 0 < size <= SMALL_BYTES else 1)
        metrics, finite = jax.tree.map(lambda x: x[:, 0], told)
        walk.states.update(states)
        for n, several in metrics.items():
            walk.metrics.setdefault(n, []).append(jax.tree.map(lambda x: x.mean(0), several))
        for n, checks in finite.items():
            walk.finite.setdefault(n, []).append(Finite(*(jnp.all(x, 0) for x in checks)))

    def _after(self, name: str) -> tuple[str, ...]:
        """The fragments of the flow that messages of ``name`` come to, in order."""
        reached = {name}
        for other in self.names:
            if any(s.source in reached for s in message_inputs(self.graph, other)):
                reached.add(other)
        return tuple(n for n in self.names if n in reached - {name})

    def _read(self, name: str, states: States, newest: Mapping[Leg, Tree]) -> dict[str, Tree]:
        """The newest params that a fragment reads, by port: of a fragment of the flow as its state has them now."""
        read: dict[str, Tree] = {}
        for stream in self.graph.into(name):
            if stream.delivery is Delivery.LATEST:
                inside = self.stages.get(stream.source)
                if inside is not None and inside.params is not None:
                    read[stream.name] = inside.params(states[stream.source])
                else:
                    read[stream.name] = newest.get((stream.source, stream.name))
        return read


def _mean(metrics: list[Metrics]) -> Metrics:
    mean: Metrics = jax.tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *metrics)
    return mean


def _all(checks: list[Finite]) -> Finite:
    return Finite(*(jnp.stack(x).all() for x in zip(*checks, strict=True)))


def message_inputs(graph: Graph, name: str) -> list[Stream]:
    """The streams whose messages a fragment waits for."""
    return [s for s in graph.into(name) if s.counted]


def flat_metrics(names: Iterable[str], metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics by one name each: a learner's as they are where there is one (``names``), else ``red/loss``.

    Those of a fragment that does not learn have its name in front.
    """
    learners = list(names)
    return {
        key if [name] == learners else f"{name.partition('.')[2] or name}/{key}": value
        for name, found in metrics.items()
        for key, value in found.items()
    }


def all_finite(params: Tree) -> Array:
    """[] bool: whether every number in ``params`` is finite. An update may overflow although its loss did not."""
    checks = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack(checks).all() if checks else jnp.bool_(True)


def kept_where(good: Array | bool, new: TrainState, before: TrainState) -> TrainState:
    """``new`` where ``good``; else its step alone, with the params and the optimizer of before."""
    both = jax.tree.map(
        lambda now, then: jnp.where(good, now, then), (new.params, new.optimizer), (before.params, before.optimizer)
    )
    return new._replace(params=both[0], optimizer=both[1])


def rewards_given(messages: Mapping[Leg, list[Tree]]) -> Array:
    """The rewards that came in, added up: finite only if all of them are."""
    rewards = [m.reward.sum() for found in messages.values() for m in found if hasattr(m, "reward")]
    return mean_over_replicas(sum(rewards[1:], rewards[0])) if rewards else jnp.zeros(())


def on_host(tree: Tree) -> Tree:
    """A tree as host code gets it: NumPy, its own to write into and to keep."""
    return jax.tree.map(np.array, jax.device_get(tree))


def _key_name(graph: Graph, name: str) -> str:
    """The name that a fragment's key is drawn with: of a part, that of the whole, so that a split changes nothing."""
    return graph.fragment(name).part_of or name
