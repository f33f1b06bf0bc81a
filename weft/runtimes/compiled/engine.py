"""A graph whose fragments are all pure: rollout and learn in one XLA program, many iterations per dispatch.

The host sends a number of iterations and reads the report of the dispatch before, so that the device never waits for
it. Buffers are donated: the state lives once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Array, Metrics, TrainState, Tree
from weft.envs.dialled_jax import Follower
from weft.envs.protocol import JaxEnv
from weft.graph.graph import Graph
from weft.runtimes.actors import actors_of, params_legs, publishers_of, samples_eaten, unroll_stream
from weft.runtimes.compiled.episodes import EpisodeSlices
from weft.runtimes.compiled.replicas import AXIS, Layout, Spread
from weft.runtimes.compiled.rollout import LoopState, Rollout, make_rollout
from weft.runtimes.flow import Flow, all_finite, flat_metrics, kept_where, rewards_given
from weft.runtimes.loop.engine import Episode, Report
from weft.runtimes.packing import pack, unpack
from weft.runtimes.stage import Finite, States
from weft.runtimes.watcher import Look

MAX_DISPATCH = 128
"""Iterations in one dispatch at most: the report of each is kept on the device until the dispatch ends."""


class FusedState(NamedTuple):
    """Everything between two iterations."""

    fragments: States
    loop: LoopState


class FusedReport(NamedTuple):
    """One iteration's, or ``[MAX_DISPATCH, ...]`` of them."""

    metrics: Metrics
    slices: dict[str, EpisodeSlices]
    finite: Finite
    figures: Metrics  # what fragments that do not learn have measured


class Varied(NamedTuple):
    """Fields of the algorithm whose values are arguments of the program: one for each seed of the layout.

    ``graph(values)`` is the graph of one member, made while the program is traced: ``values`` are its own, ``[]`` each.
    """

    values: dict[str, Array]  # [seeds] by field
    graph: Callable[[dict[str, Array]], Graph]


# Prefix trees: for a type checker they would be arrays.
_SHARED: Any = Spread.SHARED
_SPLIT: Any = Spread.SPLIT
_LOOP_SPREAD = LoopState(**dict.fromkeys(LoopState._fields, _SPLIT))._replace(step=_SHARED)
STATE_SPREAD = FusedState(fragments=_SHARED, loop=_LOOP_SPREAD)


class FusedEngine:
    """Environment, act and everything below as one compiled program, over replicas or over seeds.

    With ``varied`` the seeds are members of a population, each with values of its own for some of the algorithm's
    fields; ``graph`` then tells only what is the same for all of them.
    """

    @property
    def asynchronous(self) -> bool:
        """Whether a dispatch returns before the work is over: on a CPU it is made to wait (jax_setup)."""
        return jax.default_backend() != "cpu"

    def __init__(
        self, graph: Graph, env: JaxEnv, layout: Layout, envs: int, seed: int, varied: Varied | None = None
    ) -> None:
        self.layout = layout
        self.warn: Callable[[str], None] = print
        self.inspect: Path | None = None  # the batch is inside the program: there is nothing to keep
        self.check: Callable[[], None] = lambda: None
        actors = actors_of(graph)
        self._names = [actor.name for actor in actors]
        self._publishers = publishers_of(graph)
        self._each = envs * actors[0].algorithm.unroll  # steps in an iteration, of one seed
        self._eaten = sum(samples_eaten(graph, self._publishers, self._each).values())
        flow = Flow(graph, graph.names, layout.replicas)
        self._spread = STATE_SPREAD._replace(fragments=layout.of_states(flow.names, flow.kept))
        rollout = make_rollout(actors, env) if varied is None else None
        legs = params_legs(graph)
        self.values: dict[str, Array] = varied.values if varied else {}
        over_replicas = _episodes_over(layout)
        self._calls = 0  # learn calls of each learner in an iteration; known once it is traced
        self._flow = flow
        self._filling = 0  # iterations from now on that fill a store, and learn nothing
        self._follower = Follower(env)

        def parts(values: dict[str, Array]) -> tuple[Rollout, Flow]:
            if varied is None:
                assert rollout is not None
                return rollout, flow
            own = varied.graph(values)
            return make_rollout(actors_of(own), env), Flow(own, own.names)

        def init(of: tuple[Array, dict[str, Array]], indices: Array) -> FusedState:
            seed, values = of
            rollout, flow = parts(values)
            return FusedState(flow.init(seed), rollout.init(seed, indices))

        def iteration(rollout: Rollout, flow: Flow, state: FusedState, filling: bool) -> tuple[FusedState, FusedReport]:
            fragments, newest = flow.publish(state.fragments)
            params = {name: newest[legs[name]] for name in self._names}
            loop, unrolls, slices = rollout.unroll(params, state.loop)
            messages = {(name, unroll_stream(graph, name)): [unroll] for name, unroll in unrolls.items()}
            flowed = flow.run(fragments, messages, newest, filling=filling)
            found = {n: mean_of(several) for n, several in flowed.metrics.items()}
            learned = {n: metrics for n, metrics in found.items() if n in self._publishers}
            figures = {
                f"{n}/{key}": x for n, metrics in found.items() if n not in learned for key, x in metrics.items()
            }
            states = dict(flowed.states)
            if filling:
                finite = [Finite(jnp.bool_(True), jnp.isfinite(rewards_given(messages)))]
            else:
                self._calls = min(len(flowed.metrics[name]) * flow.repeats[name] for name in self._publishers)
                finite = [one for several in flowed.finite.values() for one in several]
                for name in self._publishers:  # its params are kept by learn itself
                    states[name] = kept_where(flowed.finite[name][-1].learned, states[name], fragments[name])
            both = Finite(*(jnp.stack(x).all() if len(x) > 1 else x[0] for x in zip(*finite, strict=True)))
            metrics = flat_metrics(self._publishers, learned)
            return FusedState(states, loop), FusedReport(metrics, over_replicas(slices), both, figures)

        def run(
            filling: bool, values: dict[str, Array], state: FusedState, iterations: Array
        ) -> tuple[FusedState, tuple[FusedReport, Array]]:
            rollout, flow = parts(values)

            # The trip count is an argument, not a constant: one program serves every dispatch size.
            def turn(state: FusedState) -> tuple[FusedState, FusedReport]:
                state, report = iteration(rollout, flow, state, filling)
                return state, jax.tree.map(lambda x: jnp.asarray(x)[None], report)

            one = jax.eval_shape(lambda s: turn(s)[1], state)
            space = jax.tree.map(lambda s: jnp.zeros((MAX_DISPATCH, *s.shape), s.dtype), jax.eval_shape(pack, one))

            def body(i: Array, carry: tuple[FusedState, Tree]) -> tuple[FusedState, Tree]:
                state, report = turn(carry[0])
                return state, jax.tree.map(lambda all_, now: all_.at[i].set(now), carry[1], pack(report))

            state, written = jax.lax.fori_loop(0, iterations, body, (state, space))
            report: FusedReport = jax.tree.map(lambda x: x[:, 0], unpack(written, one))
            # The params once a dispatch, not once an iteration: dozens of small kernels on a GPU.
            good = [all_finite(state.fragments[name].params) for name in self._publishers]
            return state, (report, jnp.stack(good).all())

        indices = jnp.arange(envs, dtype=jnp.int32)
        seeds = jnp.arange(seed, seed + layout.seeds) if layout.seeds else jnp.int32(seed)
        by_seed = Spread.PLAIN if layout.seeds else Spread.SPLIT
        self._arguments = layout.place(((seeds, self.values), indices), (Spread.SHARED, by_seed))
        self._init = layout.wrap_init(init, self._spread)
        takes, gives = (Spread.SHARED, self._spread, Spread.PLAIN), (self._spread, Spread.SHARED)
        self._run = layout.wrap(partial(run, False), takes, gives, donate=(1,))
        self._fill = layout.wrap(partial(run, True), takes, gives, donate=(1,))
        self._state: FusedState | None = None

    def start(self) -> None:
        """Begin from nothing."""
        self._state = self._init(*self._arguments)
        self._filling = self._flow.waits(self._state.fragments, self.layout.seeds)

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from a saved state; always exact."""
        self._state = self.layout.place(tree, self._spread)
        self._follower.forget()
        self._filling = self._flow.waits(self._state.fragments, self.layout.seeds)
        return []

    def template(self) -> Tree:
        """The state's structure, shapes and dtypes."""
        return jax.eval_shape(self._init, *self._arguments)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The state; its arrays are the engine's until the next ``advance``."""
        return self._state, {}

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Dispatch the iterations of ``learn_steps`` (at most MAX_DISPATCH of them) and return without waiting.

        As long as a store is being filled it makes no learn steps.
        """
        if self._filling:
            iterations, calls, run = min(self._filling, MAX_DISPATCH), 0, self._fill
            self._filling -= iterations
        else:
            if not self._calls:
                jax.eval_shape(self._run, self.values, self._state, jnp.int32(0))  # kept for the call below
            iterations, run = math.ceil(learn_steps / self._calls), self._run
            calls = iterations * self._calls
        assert self._state is not None
        now = self._state._replace(loop=self._state.loop._replace(env=self._follower.follow(self._state.loop.env)))
        self._state, (report, good) = run(self.values, now, jnp.int32(iterations))
        seeds = self.layout.seeds

        def fetch() -> Report:
            read = self._read(jax.device_get(report), np.asarray(jax.device_get(good)), iterations, calls, seeds)
            return read._replace(unmade=max(0, learn_steps - calls))

        return fetch

    def last_looks(self) -> tuple[Look, ...]:
        """None: the loop looks by itself."""
        return ()

    def train_states(self) -> dict[str, TrainState]:
        """The learners' states."""
        assert self._state is not None
        return {name: self._state.fragments[name] for name in self._publishers}

    def progress(self) -> int | None:
        """The device works on its own."""
        return None

    def awaited(self) -> str:
        """The device."""
        return "the device"

    def close(self) -> None:
        """Nothing to free: the arrays go with the engine."""
        self._state = None

    def _read(self, report: FusedReport, good: np.ndarray[Any, Any], iterations: int, calls: int, seeds: int) -> Report:
        """The host's view of a dispatch's reports; the seed axis, where there is one, comes first.

        ``good``: the params after it are finite, of each seed.
        """
        kept, made = bool(np.all(good)), iterations * self._each * max(seeds, 1)
        if seeds:
            report = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), report)
        report = jax.tree.map(lambda x: x[:iterations], report)
        slices = [report.slices[name] for name in self._names]  # not in the order of the dict: a program sorts it
        columns = [jax.tree.map(lambda x, k=k: x[:, k], slices[0]) for k in range(seeds)] or slices
        finite = report.finite
        return Report(
            calls,
            made,
            {name: np.asarray(values) for name, values in report.metrics.items()},
            [episodes_of(column) for column in columns],
            kept and bool(np.all(finite.learned)),
            bool(np.all(finite.rewards)),
            any(bool(np.any(column.cut_again)) for column in slices),
            {},
            made * len(self._names),
            made if self._flow.kept else calls * self._eaten * max(seeds, 1),
            figures={name: float(np.mean(values[-1])) for name, values in report.figures.items()},
            learned=np.asarray(finite.learned),
            kept=kept,
            whole=good,
        )


def mean_of(metrics: list[Metrics]) -> Metrics:
    """The mean of the metrics of several learn calls."""
    if len(metrics) == 1:
        return metrics[0]
    mean: Metrics = jax.tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *metrics)
    return mean


def episodes_of(slices: EpisodeSlices) -> list[Episode]:
    """Finished episodes as a compiled rollout tells of them, in time order. ``slices`` are NumPy."""
    at = np.nonzero(slices.episodes)
    rows = zip(slices.episodes[at], slices.return_sum[at], slices.length_sum[at], strict=True)
    return [(int(count), float(total), int(length)) for count, total, length in rows]


def _episodes_over(layout: Layout) -> Callable[[Tree], Tree]:
    if layout.replicas == 1:
        return lambda slices: slices
    return lambda slices: jax.lax.psum(slices, AXIS)
