"""A group with a host environment: a loop on the host around compiled act and learn.

Environments write straight into the unroll's buffers. The noise of a whole unroll is drawn in one call, and a
step is one act call and one environment step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.trees import tree_map
from weft.core.types import Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.envs.protocol import HostEnv, HostFactory
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import acted_schema
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.hosted.blocks import allocate_block, block_schema
from weft.runtimes.hosted.programs import Recall, make_programs
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.loop.engine import Finite, Report

# Prefix trees: for a type checker they would be arrays.
_SHARED: Any = Spread.SHARED
_SPLIT: Any = Spread.SPLIT


class HostedState(NamedTuple):
    """What a checkpoint holds besides the environments."""

    train: TrainState
    fragments: tuple[Tree, ...]
    carry: Tree  # [B, ...]
    act_keys: Array  # [B]
    step: Array | np.int32  # [] int32: steps that each environment has made
    timestep: Timestep  # [B, ...] what act sees next
    episode_return: Array  # [B] float64, on the host
    episode_length: Array  # [B] int64, on the host


class HostedEngine:
    """Host environments with compiled act and learn, over replicas or over seeds."""

    @property
    def asynchronous(self) -> bool:
        """Never: the environments are stepped in ``advance``."""
        return False

    def __init__(
        self, algorithm: Algorithm, graph: Graph, make: HostFactory, layout: Layout, envs: int, seed: int
    ) -> None:
        self.algorithm, self.layout, self.envs, self.seed, self.make = algorithm, layout, envs, seed, make
        self.warn: Callable[[str], None] = print
        self._lanes = max(layout.seeds, 1)
        self._programs = make_programs(algorithm, graph, layout)
        indices = np.arange(envs, dtype=np.int32)
        seeds = np.arange(seed, seed + layout.seeds) if layout.seeds else np.int32(seed)
        by_index = Spread.PLAIN if layout.seeds else Spread.SPLIT
        self._arguments = layout.place((seeds, indices), (Spread.SHARED, by_index))
        params = jax.eval_shape(self._programs.init, *self._arguments)[0].params
        if layout.seeds:
            params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), params)
        acted = acted_schema(algorithm, params)
        environment, rows = algorithm.spec.environment, envs * self._lanes
        # The carry stays on the device, where act keeps it.
        schema = block_schema(environment, algorithm.unroll, rows, acted, extras=not self._programs.recalls)
        self._buffer = UnrollBuffer(environment, allocate_block(schema._replace(carry=())), envs, layout.seeds)
        self._environments: list[HostEnv] = []
        self._state: HostedState | None = None

    def start(self) -> None:
        """Make and reset the environments, and begin from nothing."""
        self._open()
        first = self._buffer.outs[0]
        for k, env in enumerate(self._environments):
            env.reset(_lane(first, k, self.envs))
        self._state = self._with_host(*self._programs.init(*self._arguments))

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Make the environments anew and bring each to where it was; rows that cannot be are named."""
        self._open()
        first = self._buffer.outs[0]
        state: HostedState = self.layout.place(tree, _STATE_LIES)
        episode_return, episode_length = np.array(tree.episode_return), np.array(tree.episode_length)
        inexact: list[str] = []
        for k, (env, snapshot) in enumerate(zip(self._environments, document["environments"], strict=True)):
            rows = env.restore(snapshot, _lane(first, k, self.envs))
            lost = np.zeros(self.envs, np.bool_)
            lost[rows] = True
            kept, saved = ~lost, _lane(jax.tree.map(np.asarray, tree.timestep), k, self.envs)
            tree_map(
                lambda now, then, kept=kept: np.copyto(now, then, where=kept.reshape((-1, *[1] * (now.ndim - 1)))),
                _lane(first._replace(final_observation=None), k, self.envs),
                saved,
            )
            inexact += [f"environment {row}" for row in rows]
            for total in (episode_return, episode_length):
                total[k * self.envs : (k + 1) * self.envs][lost] = 0
        self._state = state._replace(episode_return=episode_return, episode_length=episode_length)
        return inexact

    def template(self) -> Tree:
        """The saved state's structure, shapes and dtypes."""
        return self._with_host(*jax.eval_shape(self._programs.init, *self._arguments))

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The state and the environments' snapshots."""
        assert self._state is not None
        timestep = tree_map(np.copy, self._buffer.outs[0]._replace(final_observation=None))
        snapshots = [env.snapshot() for env in self._environments]
        return self._state._replace(timestep=timestep), {"environments": snapshots}

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Make ``learn_steps`` unrolls and learn from each; blocks until they are done."""
        metrics: list[Metrics] = []
        finite: list[Finite] = []
        episodes: list[list[tuple[int, float, int]]] = [[] for _ in range(self._lanes)]
        shares = {"env": 0.0, "act": 0.0, "learn": 0.0}
        for _ in range(learn_steps):
            unroll, recall = self._unroll(shares, episodes)
            began = time.perf_counter()
            assert self._state is not None
            train, fragments, scalars, ok = self._programs.learn(
                self._state.train, self._state.fragments, unroll, recall
            )
            self._state = self._state._replace(train=train, fragments=fragments)
            metrics.append(scalars)
            finite.append(ok)
            jax.block_until_ready(ok)
            self._buffer.roll()  # not before: the unroll that learn reads is a view of the buffer
            shares["learn"] += time.perf_counter() - began

        def fetch() -> Report:
            host = jax.device_get(metrics)
            columns = {name: np.stack([row[name] for row in host]) for name in host[0]}
            flags = jax.device_get(finite)
            learned, rewards = all(f.learned.all() for f in flags), all(f.rewards.all() for f in flags)
            return Report(learn_steps, columns, episodes, learned, rewards, False, shares)

        return fetch

    def train_state(self) -> TrainState:
        """The learner's state."""
        assert self._state is not None
        return self._state.train

    def close(self) -> None:
        """Close the environments."""
        for env in self._environments:
            env.close()
        self._environments = []

    def _open(self) -> None:
        self.close()
        for k in range(self._lanes):
            self._environments.append(self.make(self.envs, self.seed + k))

    def _with_host(self, train: TrainState, fragments: tuple[Tree, ...], carry: Tree, keys: Array) -> HostedState:
        """The state of a new run, given what ``init`` makes of it."""
        timestep = tree_map(np.copy, self._buffer.outs[0]._replace(final_observation=None))
        batch = self._lanes * self.envs
        totals = np.zeros(batch, np.float64), np.zeros(batch, np.int64)
        return HostedState(train, fragments, carry, keys, np.int32(0), timestep, *totals)

    def _unroll(
        self, shares: dict[str, float], episodes: list[list[tuple[int, float, int]]]
    ) -> tuple[Unroll, Recall | None]:
        """T steps of every environment; the unroll is a view of the buffer, until the buffer rolls."""
        state, buffer, programs = self._state, self._buffer, self._programs
        assert state is not None
        clock = time.perf_counter
        params, start = state.train.params, state.carry
        began = clock()
        act, given, seen = programs.act.call, programs.act.params(jax.tree.leaves(params)), buffer.seen_by(programs.act)
        drawn = programs.noise(state.act_keys, np.int32(state.step + 1))
        noise = buffer.by_step(jax.tree.map(np.asarray, drawn))
        carry, acting, stepping = start, clock() - began, 0.0
        environments, single = self._environments, len(self._environments) == 1
        for t in range(buffer.length):
            began = clock()
            acted = act(given, carry, seen[t], noise[t])
            if programs.recalls:
                action = buffer.remember_action(t, acted)
            else:
                action, carry = buffer.remember(t, acted), acted.carry
            now = clock()
            acting += now - began
            if single:
                environments[0].step(action, buffer.outs[t + 1])
            else:
                for k, env in enumerate(environments):
                    env.step(action[k * self.envs : (k + 1) * self.envs], _lane(buffer.outs[t + 1], k, self.envs))
            buffer.note_cuts(t, carry)
            stepping += clock() - now
        began = clock()
        buffer.finish(params, carry, programs.bootstrap)
        unroll = buffer.assemble(start)
        totals = buffer.count_episodes(state.episode_return, state.episode_length, episodes)
        step = np.int32(state.step + buffer.length)
        self._state = state._replace(carry=carry, step=step, episode_return=totals[0], episode_length=totals[1])
        shares["env"] += stepping
        shares["act"] += acting + clock() - began
        return unroll, Recall(buffer.seen(), drawn) if programs.recalls else None


_STATE_LIES = HostedState(**dict.fromkeys(HostedState._fields, _SHARED))._replace(
    carry=_SPLIT, act_keys=_SPLIT, timestep=_SPLIT
)


def _lane(timestep: Timestep, k: int, envs: int) -> Timestep:
    """The rows of one seed."""
    return tree_map(lambda x: x[k * envs : (k + 1) * envs], timestep)  # type: ignore[no-any-return]
