"""A graph with host code in it, in one process: a loop on the host around compiled pieces.

Roll out an unroll, then walk the graph below act, fragment by fragment; pure ones that follow each other are one
program. Host environments write straight into the unroll's buffers; a JAX environment whose graph has host code further
down is rolled out by a program of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Metrics, TrainState, Tree, Unroll
from weft.envs.guards import Trouble
from weft.envs.protocol import EnvSource
from weft.graph.graph import Graph
from weft.runtimes.actors import act_names, params_legs, publishers_of, samples_eaten, steps_of
from weft.runtimes.compiled.replicas import Layout
from weft.runtimes.flow import Flow, flat_metrics, kept_where, on_host
from weft.runtimes.hosted.programs import Recall
from weft.runtimes.hosted.segments import Learned
from weft.runtimes.loop.bad_steps import keep_batch
from weft.runtimes.loop.engine import Episode, Report
from weft.runtimes.stage import Finite, States
from weft.runtimes.watcher import Look

Episodes = list[list[Episode]]

FILL_SECONDS = 0.25
"""After which time an engine that only fills a store tells how far it is."""

MAX_UNLEARNED = 1000
"""Unrolls in a row that host code may keep from learn before the user is measured."""


class HostedState(NamedTuple):
    """What a checkpoint holds besides the environments."""

    fragments: States
    roll: Tree  # the roll's own


class Rolled(NamedTuple):
    """One unroll of each act, by name."""

    unrolls: dict[str, Unroll]
    recalls: dict[str, Recall | None]
    acting: float  # seconds
    stepping: float  # seconds
    troubles: list[Trouble] = []  # noqa: RUF012  what environments met meanwhile


class Roll(Protocol):
    """Environments and inference: makes an unroll of each act when asked."""

    acts: dict[str, Any]  # their programs
    env_steps: int  # of one unroll, all seeds together
    moved: int  # grows with each step

    def init(self, flow: Flow) -> States:
        """Fresh states of a flow's pure part, and with them the roll's own."""
        ...

    def start(self) -> None:
        """Begin the environments."""
        ...

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from what ``saved`` gave; returns what could not be brought back exactly."""
        ...

    def template(self, flow: Flow) -> tuple[States, Tree]:
        """The structure, shapes and dtypes of the states of the flow's pure part, and of ``saved``'s tree."""
        ...

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """Where environments and acts stand: arrays, and a JSON document."""
        ...

    def place(self, states: States) -> States:
        """Saved states of fragments, where they belong."""
        ...

    def unroll(self, params: dict[str, Tree], episodes: Episodes) -> Rolled:
        """T steps; what it gives may be views that last until ``learned``."""
        ...

    def learned(self) -> None:
        """The unrolls that were given have been used."""
        ...

    def close(self) -> None:
        """Close the environments; may be called twice."""
        ...


class HostedEngine:
    """A roll, and the graph below it, over replicas or over seeds."""

    @property
    def asynchronous(self) -> bool:
        """Never: the environments are stepped in ``advance``."""
        return False

    def __init__(self, graph: Graph, source: EnvSource, layout: Layout, envs: int, seed: int) -> None:
        from weft.runtimes.hosted.rolls import make_roll

        self.layout, self._seed = layout, seed
        self.warn: Callable[[str], None] = print
        self.inspect: Path | None = None
        self.check: Callable[[], None] = lambda: None
        self._pieces_run = 0
        self._publishers, self._legs = publishers_of(graph), params_legs(graph)
        self._series = max(layout.seeds, len(self._legs) if len(self._legs) > 1 else 1)
        self._roll, self._segments = make_roll(graph, source, layout, envs, seed)
        self._stages = steps_of(graph), "+".join(act_names(graph)), "+".join(self._publishers)
        self._eaten = samples_eaten(graph, self._publishers, self._roll.env_steps)
        self._fragments: States | None = None
        self._filling = 0  # unrolls from now on that fill a store, and that nothing is learned from

    def start(self) -> None:
        """Begin from nothing."""
        self._fragments = self._roll.init(self._segments.flow) | self._host_states()
        self._filling = self._segments.flow.waits(self._fragments, self.layout.seeds)
        self._roll.start()

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Make the environments anew and bring each to where it was; those that cannot be are named."""
        inexact = self._roll.resume(tree.roll, document)
        host = {name: on_host(tree.fragments[name]) for name in self._segments.host}
        self._fragments = self._roll.place({n: s for n, s in tree.fragments.items() if n not in host}) | host
        self._filling = self._segments.flow.waits(self._fragments, self.layout.seeds)
        return inexact

    def template(self) -> Tree:
        """The saved state's structure, shapes and dtypes."""
        states, roll = self._roll.template(self._segments.flow)
        return HostedState(states | self._host_states(), roll)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The state and the environments' snapshots."""
        assert self._fragments is not None
        roll, document = self._roll.saved()
        return HostedState(self._fragments, roll), document

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Make unrolls and learn from each, until ``learn_steps`` learn calls of each learner; blocks until then.

        While a store is being filled it comes back every now and then, with no learn steps.
        """
        metrics: dict[str, list[Metrics]] = {name: [] for name in self._publishers}
        finite: list[Finite] = []
        episodes: Episodes = [[] for _ in range(self._series)]
        stepping, acting, learning = self._stages
        shares = dict.fromkeys(self._stages, 0.0)
        env_steps = unlearned = 0
        troubles: list[Trouble] = []
        went_well: list[Any] = []  # of each unroll that was learned from, whether every learner did: [] or [seeds] bool
        figures: dict[str, Any] = {}  # what fragments that do not learn have measured, as it was last
        until = time.perf_counter() + FILL_SECONDS
        while self._calls_in(metrics) < learn_steps and not (self._filling and time.perf_counter() > until):
            assert self._fragments is not None
            began = time.perf_counter()
            fragments, newest = self._segments.publish(self._fragments)
            rolled = self._roll.unroll({name: newest[leg] for name, leg in self._legs.items()}, episodes)
            env_steps += self._roll.env_steps
            troubles += rolled.troubles
            shares[stepping] += rolled.stepping
            shares[acting] += time.perf_counter() - began - rolled.stepping
            began = time.perf_counter()
            self._pieces_run += 1
            filling = self._filling > 0
            self._fragments, learned = self._segments.run(fragments, rolled.unrolls, rolled.recalls, newest, filling)
            self._filling -= filling
            for name, calls in learned.metrics.items():
                if name in metrics:
                    metrics[name] += calls
                else:
                    figures |= {f"{name}/{key}": value for key, value in calls[-1].items()}
            finite += [one for calls in learned.finite.values() for one in calls]
            jax.block_until_ready(learned.finite or self._fragments)
            calls_made = [np.asarray(one.learned) for calls in learned.finite.values() for one in calls]
            if calls_made:
                went_well.append(np.logical_and.reduce(calls_made))
            if calls_made and not went_well[-1].all():
                step = max(int(np.max(state.step)) for state in self.train_states().values())
                keep_batch(self.inspect, step, rolled.unrolls)
                self._undo(fragments, learned)
            self._roll.learned()
            self._pieces_run += 1
            unlearned = 0 if learned.metrics or filling else unlearned + 1
            if unlearned == MAX_UNLEARNED:
                mine = ", ".join(self._segments.host)
                self.warn(
                    f"nothing of the last {unlearned} unrolls reached {learning}: {mine} gave no message for them"
                )
            shares[learning] += time.perf_counter() - began
        learn_calls = self._calls_in(metrics)

        def fetch() -> Report:
            host = jax.device_get(metrics)
            columns = {
                name: {key: np.stack([row[key] for row in rows]) for key in rows[0]}
                for name, rows in host.items()
                if rows
            }
            flags = jax.device_get(finite)
            good, rewards = all(f.learned.all() for f in flags), all(f.rewards.all() for f in flags)
            flat = flat_metrics(self._publishers, columns)
            made = env_steps * len(self._legs)
            trained = sum(self._eaten[name] * len(rows) for name, rows in host.items())
            if self._segments.flow.kept:  # what comes to a store has come where it is learned from
                trained = env_steps
            measured = {name: float(np.mean(value)) for name, value in jax.device_get(figures).items()}
            return Report(
                learn_calls,
                env_steps,
                flat,
                episodes,
                good,
                rewards,
                False,
                shares,
                made,
                trained,
                figures=measured,
                troubles=tuple(troubles),
                learned=np.stack(went_well) if went_well else None,
                unmade=max(0, learn_steps - learn_calls),
            )

        return fetch

    def _calls_in(self, metrics: dict[str, list[Metrics]]) -> int:
        """Learn calls of each learner, of which ``metrics`` has the figures."""
        return min(len(found) * self._segments.flow.repeats[name] for name, found in metrics.items())

    def _undo(self, before: States, learned: Learned) -> None:
        """Learners that met what is not finite have the params and the optimizer of before; of each seed by itself."""
        assert self._fragments is not None
        for name, calls in learned.finite.items():
            good = jnp.asarray(np.logical_and.reduce([np.asarray(one.learned) for one in calls]))
            keep = jax.vmap(kept_where) if good.ndim else kept_where
            self._fragments[name] = keep(good, self._fragments[name], before[name])

    def last_looks(self) -> tuple[Look, ...]:
        """None: the loop looks by itself."""
        return ()

    def train_states(self) -> dict[str, TrainState]:
        """The learners' states."""
        assert self._fragments is not None
        return {name: self._fragments[name] for name in self._publishers}

    def progress(self) -> int | None:
        """Steps of the environments, and what runs between unrolls."""
        return self._roll.moved + self._pieces_run

    def awaited(self) -> str:
        """What runs below act, where it is no environment."""
        return "the learn step under way"

    def close(self) -> None:
        """Close the environments."""
        self._roll.close()

    def _host_states(self) -> States:
        return self._segments.flow.init_host(jnp.int32(self._seed))
