"""A group whose fragments are all pure: rollout and learn in one XLA program, many iterations per dispatch.

The host sends a number of iterations and reads the report of the dispatch before, so that the device never waits for
it. Buffers are donated: the state lives once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Array, Metrics, TrainState, Tree
from weft.envs.protocol import JaxEnv
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.runtimes.compiled.episodes import EpisodeSlices
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.compiled.rollout import LoopState, make_rollout
from weft.runtimes.loop.engine import Episode, Finite, Report, all_finite, make_stages

MAX_DISPATCH = 128
"""Iterations in one dispatch at most: the report of each is kept on the device until the dispatch ends."""


class FusedState(NamedTuple):
    """Everything between two iterations."""

    train: TrainState
    loop: LoopState
    fragments: tuple[Tree, ...]


class FusedReport(NamedTuple):
    """One iteration's, or ``[MAX_DISPATCH, ...]`` of them."""

    metrics: Metrics
    slices: EpisodeSlices
    finite: Finite


# Prefix trees: for a type checker they would be arrays.
_SHARED: Any = Spread.SHARED
_SPLIT: Any = Spread.SPLIT
_LOOP_LIES = LoopState(**dict.fromkeys(LoopState._fields, _SPLIT))._replace(step=_SHARED)
STATE_LIES = FusedState(train=_SHARED, loop=_LOOP_LIES, fragments=_SHARED)


class FusedEngine:
    """Environment, act and learn as one compiled program, over replicas or over seeds."""

    @property
    def asynchronous(self) -> bool:
        """Whether a dispatch returns before the work is over: on a CPU it is made to wait (jax_setup)."""
        return jax.default_backend() != "cpu"

    def __init__(self, algorithm: Algorithm, graph: Graph, env: JaxEnv, layout: Layout, envs: int, seed: int) -> None:
        self.layout = layout
        self.warn: Callable[[str], None] = print
        rollout, stages = make_rollout(algorithm, env), make_stages(algorithm, graph)
        axis_mean = _episodes_over(layout)

        def init(seed: Array, indices: Array) -> FusedState:
            train, fragments = stages.init(seed)
            return FusedState(train, rollout.init(seed, indices), fragments)

        def iteration(state: FusedState) -> tuple[FusedState, FusedReport]:
            loop, unroll, slices = rollout.unroll(state.train.params, state.loop)
            train, fragments, metrics, finite = stages.learn(state.train, state.fragments, unroll)
            return FusedState(train, loop, fragments), FusedReport(metrics, axis_mean(slices), finite)

        def run(state: FusedState, iterations: Array) -> tuple[FusedState, FusedReport]:
            # The trip count is an argument, not a constant: one program serves every dispatch size.
            report = jax.eval_shape(lambda s: iteration(s)[1], state)
            space = jax.tree.map(lambda s: jnp.zeros((MAX_DISPATCH, *s.shape), s.dtype), report)

            def body(i: Array, carry: tuple[FusedState, FusedReport]) -> tuple[FusedState, FusedReport]:
                state, report = iteration(carry[0])
                return state, jax.tree.map(lambda all_, one: all_.at[i].set(one), carry[1], report)

            state, report = jax.lax.fori_loop(0, iterations, body, (state, space))
            # The params once a dispatch, not once an iteration: dozens of small kernels on a GPU.
            learned = report.finite.learned & all_finite(state.train.params)
            return state, report._replace(finite=report.finite._replace(learned=learned))

        indices = jnp.arange(envs, dtype=jnp.int32)
        seeds = jnp.arange(seed, seed + layout.seeds) if layout.seeds else jnp.int32(seed)
        by_seed = Spread.PLAIN if layout.seeds else Spread.SPLIT
        self._arguments = layout.place((seeds, indices), (Spread.SHARED, by_seed))
        self._init = layout.wrap_init(init, STATE_LIES)
        self._run = layout.wrap(run, (STATE_LIES, Spread.PLAIN), (STATE_LIES, Spread.SHARED), donate=(0,))
        self._state: FusedState | None = None

    def start(self) -> None:
        """Begin from nothing."""
        self._state = self._init(*self._arguments)

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from a saved state; always exact."""
        self._state = self.layout.place(tree, STATE_LIES)
        return []

    def template(self) -> Tree:
        """The state's structure, shapes and dtypes."""
        return jax.eval_shape(self._init, *self._arguments)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The state; its arrays are the engine's until the next ``advance``."""
        return self._state, {}

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Dispatch ``learn_steps`` iterations (at most MAX_DISPATCH) and return without waiting."""
        self._state, report = self._run(self._state, jnp.int32(learn_steps))

        def fetch() -> Report:
            return _read(jax.device_get(report), learn_steps, self.layout.seeds)

        return fetch

    def train_state(self) -> TrainState:
        """The learner's state."""
        assert self._state is not None
        return self._state.train

    def close(self) -> None:
        """Nothing to free: the arrays go with the engine."""
        self._state = None


def _episodes_over(layout: Layout) -> Callable[[EpisodeSlices], EpisodeSlices]:
    if layout.replicas == 1:
        return lambda slices: slices
    from weft.runtimes.compiled.replicas import AXIS

    return lambda slices: jax.lax.psum(slices, AXIS)


def _read(report: FusedReport, learn_steps: int, seeds: int) -> Report:
    """The host's view of a dispatch's reports; the seed axis, where there is one, comes first."""
    if seeds:
        report = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), report)
    report = jax.tree.map(lambda x: x[:learn_steps], report)
    columns = [jax.tree.map(lambda x, k=k: x[:, k], report.slices) for k in range(seeds)] or [report.slices]
    episodes: list[list[Episode]] = []
    for slices in columns:
        at = np.nonzero(slices.episodes)
        rows = zip(slices.episodes[at], slices.return_sum[at], slices.length_sum[at], strict=True)
        episodes.append([(int(count), float(total), int(length)) for count, total, length in rows])
    finite = report.finite
    all_finite, rewards_finite = bool(np.all(finite.learned)), bool(np.all(finite.rewards))
    metrics = {name: np.asarray(values) for name, values in report.metrics.items()}
    cut_again = bool(np.any(report.slices.cut_again))
    return Report(learn_steps, metrics, episodes, all_finite, rewards_finite, cut_again, {})
