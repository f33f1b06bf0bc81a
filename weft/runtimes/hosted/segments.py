"""A flow with host code in it, cut into pieces: compiled runs of pure fragments, and host fragments between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from weft.core.types import Array, Metrics, Tree, Unroll
from weft.graph.graph import Graph
from weft.graph.stream import Delivery
from weft.runtimes.actors import learner_of, unroll_stream
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.flow import Flow, Flowed, all_finite, message_inputs, on_host, rewards_given
from weft.runtimes.hosted.programs import UNROLL_SPREAD, ActPrograms, Recall
from weft.runtimes.stage import Finite, Leg, States


class Learned(NamedTuple):
    """What became of the messages of a roll: metrics and checks of each learn call, by learner.

    What follows a store has one entry for all calls: ``Flow.repeats``.
    """

    metrics: dict[str, list[Metrics]]
    finite: dict[str, list[Finite]]


class Segments:
    """The fragments of a flow in order, pure ones that follow each other as one program."""

    def __init__(self, graph: Graph, names: tuple[str, ...], layout: Layout, acts: Mapping[str, ActPrograms]) -> None:
        self.flow = Flow(graph, names, layout.replicas)
        self.spread = layout.of_states((n for n in self.flow.names if self.flow.stages[n].pure), self.flow.kept)
        runs: list[list[str]] = []
        for name in self.flow.names:
            pure = self.flow.stages[name].pure
            if runs and pure and self.flow.stages[runs[-1][-1]].pure:
                runs[-1].append(name)
            else:
                runs.append([name])
        self._pieces = [_Piece(graph, tuple(run), layout, acts if k == 0 else {}) for k, run in enumerate(runs)]
        self.host = tuple(n for n in self.flow.names if not self.flow.stages[n].pure)
        changing = [n for n in self.flow.names if not message_inputs(graph, n)]
        self._publish = self.flow.publish
        if changing and not set(changing) & set(self.host):
            self._publish = layout.wrap(self.flow.publish, (self.spread,), (self.spread, Spread.SHARED))

    def recalls_inside(self, act: str) -> bool:
        """Whether an act's extras are found inside the first program, from its learner's own params."""
        return self._pieces[0].recalls(act)

    def publish(self, states: States) -> tuple[States, dict[Leg, Tree]]:
        """The newest params by leg, and the states of the maps that they pass."""
        return self._publish(states)

    def run(
        self,
        states: States,
        unrolls: Mapping[str, Unroll],
        recalls: Mapping[str, Recall | None],
        newest: Mapping[Leg, Tree],
        filling: bool = False,
    ) -> tuple[States, Learned]:
        """Take one unroll of each act through all pieces; while stores are ``filling``, nothing is drawn from them.

        The states of stores are given away: those in ``states`` cannot be used any more.
        """
        graph = self.flow.graph
        messages: dict[Leg, list[Tree]] = {(n, unroll_stream(graph, n)): [u] for n, u in unrolls.items()}
        states, learned = dict(states), Learned({}, {})
        # Behind host code messages may say something else: what the environments gave is known here alone.
        given = rewards_given(messages) if self.host else None
        for piece in self._pieces:
            mine = {name: states[name] for name in piece.flow.names}
            states_now, messages, metrics, finite = piece.run(mine, messages, recalls, newest, given, filling)
            states |= states_now
            newest = {**newest, **piece.published(states)}  # what was published before is given away by now
            learned.metrics.update(metrics)
            learned.finite.update(finite)
        return states, learned


class _Piece:
    def __init__(self, graph: Graph, names: tuple[str, ...], layout: Layout, acts: Mapping[str, ActPrograms]) -> None:
        self.flow, self._layout, self._acts, self._graph = Flow(graph, names, layout.replicas), layout, acts, graph
        self._pure = all(stage.pure for stage in self.flow.stages.values())
        self._programs: dict[Any, Callable[..., Any]] = {}
        own = [name for name in self.flow.names if self.flow.stages[name].params is not None]
        self._own = [(n, s.name) for n in own for s in graph.out_of(n) if s.delivery is Delivery.LATEST]
        running = [name for name in self.flow.names if message_inputs(graph, name)]
        read = {(s.source, s.name): None for n in running for s in graph.into(n) if s.delivery is Delivery.LATEST}
        self._reads = [leg for leg in read if leg not in self._own]

    def published(self, states: States) -> dict[Leg, Tree]:
        return {leg: self.flow.params(states, leg[0]) for leg in self._own}

    def recalls(self, act: str) -> bool:
        if act not in self._acts or not self._pure:
            return False
        reader = next(s.target for s in self._graph.out_of(act) if s.counted)
        return learner_of(self._graph, act) in self.flow.names and reader in self.flow.names

    def run(
        self,
        states: States,
        messages: Mapping[Leg, list[Tree]],
        recalls: Mapping[str, Recall | None],
        newest: Mapping[Leg, Tree],
        given: Array | None,
        filling: bool,
    ) -> tuple[States, dict[Leg, list[Tree]], dict[str, list[Metrics]], dict[str, list[Finite]]]:
        outside = {leg: newest[leg] for leg in self._reads if leg in newest}
        mine = {leg: found for leg, found in messages.items() if self._taken_here(leg)}
        passing = {leg: found for leg, found in messages.items() if leg not in mine}
        if not self._pure:
            # Copies: host code may keep what it is given, and a roll's buffers are written again.
            flowed = self.flow.run(states, on_host(mine), on_host(outside), given)
            return on_host(flowed.states), passing | flowed.out, flowed.metrics, flowed.finite
        found = {name: recall for name, recall in recalls.items() if name in self._acts}
        program = self._program({leg: len(several) for leg, several in mine.items()}, found, outside, filling)
        kept = {name: states[name] for name in self.flow.kept}
        others = {name: state for name, state in states.items() if name not in kept}
        flowed = program(kept, others, mine, found, outside, given)
        return flowed.states, passing | flowed.out, flowed.metrics, flowed.finite

    def _taken_here(self, leg: Leg) -> bool:
        return any(s.source == leg[0] and s.name == leg[1] and s.target in self.flow.names for s in self._graph.streams)

    def _program(
        self,
        counts: dict[Leg, int],
        recalls: Mapping[str, Recall | None],
        newest: Mapping[Leg, Tree],
        filling: bool,
    ) -> Callable[..., Flowed]:
        key = (filling, *sorted(counts.items()))
        if key not in self._programs:
            messages: Any = {leg: [UNROLL_SPREAD] * count for leg, count in counts.items()}
            shared, split_time = Spread.SHARED, Spread.SPLIT_TIME
            if any(leg[0] not in self._acts for leg in counts):  # what a map gave: one replica and one seed
                messages = shared
            by_act, by_leg = dict.fromkeys(recalls, split_time), dict.fromkeys(newest, shared)
            kept = Spread.SPLIT if self._layout.replicas > 1 else shared
            takes = (kept, shared, messages, by_act, by_leg, Spread.PLAIN)
            states: Any = self._layout.of_states(self.flow.names, self.flow.kept)
            gives = shared if states is shared else Flowed(states, *[cast("Any", shared)] * 3)
            # What a store holds may be most of the memory: it is changed in place, and not copied.
            self._programs[key] = self._layout.wrap(partial(self._traced, filling), takes, gives, donate=(0,))
        return self._programs[key]

    def _traced(
        self,
        filling: bool,
        kept: States,
        states: States,
        messages: dict[Leg, list[Tree]],
        recalls: Mapping[str, Recall | None],
        newest: Mapping[Leg, Tree],
        given: Array | None,
    ) -> Flowed:
        return learn_from(self.flow, self._acts, states | kept, messages, recalls, newest, given, filling)


def learn_from(
    flow: Flow,
    acts: Mapping[str, ActPrograms],
    states: States,
    messages: Mapping[Leg, list[Tree]],
    recalls: Mapping[str, Recall | None],
    newest: Mapping[Leg, Tree],
    given: Array | None = None,
    filling: bool = False,
) -> Flowed:
    """One pass of a pure flow: extras found again where act left them out, then all stages, then a look at the params.

    To be traced.
    """
    found = dict(messages)
    for name, recall in recalls.items():
        leg = (name, unroll_stream(flow.graph, name))
        learner = learner_of(flow.graph, name)
        if recall is not None and learner is not None:
            (unroll,) = found[leg]
            params = flow.params(states, learner)
            found[leg] = [unroll._replace(extras=acts[name].again(params, unroll.carry, recall))]
    flowed = flow.run(states, found, newest, given, filling)
    finite = {
        name: [
            *calls[:-1],
            calls[-1]._replace(learned=calls[-1].learned & all_finite(flow.params(flowed.states, name))),
        ]
        for name, calls in flowed.finite.items()
    }
    return flowed._replace(finite=finite)
