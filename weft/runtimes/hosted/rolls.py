"""The two rolls: host environments stepped in a loop, and JAX environments rolled out by one program."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.keys import env_keys, fragment_key
from weft.core.trees import tree_map
from weft.core.types import Array, Timestep, Tree
from weft.envs.dialled_jax import Follower
from weft.envs.guards import take_troubles
from weft.envs.protocol import EnvSource, HostEnv, HostFactory
from weft.graph.graph import Graph
from weft.graph.loops import acted_schema
from weft.runtimes.actors import actors_of, goes_unmarked
from weft.runtimes.compiled.engine import episodes_of
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.compiled.rollout import Actor, broadcast, make_rollout
from weft.runtimes.flow import Flow
from weft.runtimes.hosted.blocks import all_valid, allocate_block, block_schema, unmarked
from weft.runtimes.hosted.engine import Episodes, Roll, Rolled
from weft.runtimes.hosted.programs import Recall, act_programs, worth_recalling
from weft.runtimes.hosted.rolling import (
    RollingAct,
    Stepper,
    bring_back,
    kept_rows,
    roll_out,
)
from weft.runtimes.hosted.segments import Segments
from weft.runtimes.hosted.unroll_buffer import Ended, UnrollBuffer
from weft.runtimes.stage import States


def make_roll(graph: Graph, source: EnvSource, layout: Layout, envs: int, seed: int) -> tuple[Roll, Segments]:
    """The roll that a graph's environment needs, and the pieces of the graph below it."""
    acts = {
        actor.name: act_programs(actor.algorithm, layout, recalls=worth_recalling(actor.algorithm))
        for actor in actors_of(graph)
    }
    below = tuple(f.name for f in graph.fragments if not f.role.every_step)
    segments = Segments(graph, below, layout, acts if source.host is not None else {})
    if source.host is not None:
        return HostRoll(graph, source.host, layout, envs, seed, segments, acts), segments
    assert source.pure is not None
    return JaxRoll(graph, source, layout, envs, seed), segments


class ActState(NamedTuple):
    """Where one act stands between two unrolls."""

    carry: Tree  # [B, ...]
    keys: Array  # [B]
    timestep: Timestep  # [B, ...] what it sees next
    episode_return: Array  # [B] float64, on the host
    episode_length: Array  # [B] int64, on the host


class HostState(NamedTuple):
    """Of all acts, by name, and the steps that each environment has made."""

    acts: dict[str, ActState]
    step: Array | np.int32  # [] int32


class HostRoll:
    """Host environments; with several seeds, a batch of them for each."""

    def __init__(
        self,
        graph: Graph,
        make: HostFactory,
        layout: Layout,
        envs: int,
        seed: int,
        segments: Segments,
        acts: dict[str, Any],
    ) -> None:
        self.layout, self.envs, self.seed, self.make, self.acts = layout, envs, seed, make, acts
        self._actors, self._spread = actors_of(graph), segments.spread
        self._inside = {name: segments.recalls_inside(name) and p.recalls for name, p in acts.items()}
        self._batches = max(layout.seeds, 1)
        self._rows = envs * self._batches
        self._length = self._actors[0].algorithm.unroll
        self.env_steps = self._rows * self._length
        indices = np.arange(envs, dtype=np.int32)
        seeds = np.arange(seed, seed + layout.seeds) if layout.seeds else np.int32(seed)
        by_index = Spread.PLAIN if layout.seeds else Spread.SPLIT
        self._arguments = layout.place((seeds, indices), (Spread.SHARED, by_index))
        self._buffers = {actor.name: self._buffer(actor) for actor in self._actors}
        self._unmarked = {actor.name: goes_unmarked(graph, actor.name) for actor in self._actors}
        self.moved = 0
        self._environments: list[HostEnv] = []
        self._rolling: dict[str, RollingAct] = {}
        self._step = 0
        self._init: Any = None
        self._fresh: dict[str, tuple[Tree, Array]] = {}

    def _buffer(self, actor: Actor) -> UnrollBuffer:
        algorithm = actor.algorithm
        params = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
        environment = algorithm.spec.environment
        # The carry stays on the device, where act keeps it.
        extras = not self._inside[actor.name]
        acted = acted_schema(algorithm, params)
        schema = block_schema(environment, algorithm.unroll, self._rows, acted, extras=extras, finals=actor.finals)
        return UnrollBuffer(environment, allocate_block(schema._replace(carry=())), self.envs, self.layout.seeds)

    def init(self, flow: Flow) -> States:
        """Fresh states of the flow's pure part; the acts' carries and keys come with them, in one program."""
        states, self._fresh = self._program(flow)(*self._arguments)
        return states  # type: ignore[no-any-return]

    def _program(self, flow: Flow) -> Any:
        if self._init is None:
            actors = self._actors

            def init(seed: Array, indices: Array) -> tuple[States, dict[str, tuple[Tree, jax.Array]]]:
                batch = indices.shape[0]
                fresh = {
                    actor.name: (
                        broadcast(actor.algorithm.initial_carry(), batch),
                        env_keys(fragment_key(seed, actor.name), indices),
                    )
                    for actor in actors
                }
                return flow.init_pure(seed), fresh

            self._init = self.layout.wrap_init(init, (self._spread, Spread.SPLIT))
        return self._init

    def start(self) -> None:
        """Make and reset the environments."""
        self._open()
        for actor in self._actors:
            carry, keys = self._fresh[actor.name]
            self._add(actor, carry, keys)
        self._stepper().reset()
        self._step = 0

    def resume(self, tree: HostState, document: dict[str, Any]) -> list[str]:
        """Make the environments anew and bring each to where it was; rows that cannot be are named."""
        self._open()
        for actor in self._actors:
            saved = tree.acts[actor.name]
            carry, keys = self.layout.place((saved.carry, saved.keys), Spread.SPLIT)
            self._add(actor, carry, keys)
        lost = self._stepper().restore(document["environments"])
        kept = np.concatenate([kept_rows(rows, self.envs) for rows in lost])
        for actor in self._actors:
            saved, first = tree.acts[actor.name], self._buffers[actor.name].outs[0]._replace(final_observation=None)
            then = jax.tree.map(np.asarray, saved.timestep)
            tree_map(lambda now, old: np.copyto(now, bring_back(now, old, kept)), first, then)
            totals = (np.asarray(saved.episode_return), np.asarray(saved.episode_length))
            self._rolling[actor.name].totals = bring_back(jax.tree.map(np.zeros_like, totals), totals, kept)
        self._step = int(np.asarray(tree.step))
        return [f"environment {row}" for rows in lost for row in rows]

    def template(self, flow: Flow) -> tuple[States, Tree]:
        """Structures, shapes and dtypes."""
        states, fresh = jax.eval_shape(self._program(flow), *self._arguments)
        return states, self._state(fresh, np.int32(0), {})

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """Where acts stand, and the environments' snapshots."""
        stands = {name: (act.carry, act.keys) for name, act in self._rolling.items()}
        totals = {name: act.totals for name, act in self._rolling.items()}
        snapshots = [env.snapshot() for env in self._environments]
        return self._state(stands, np.int32(self._step), totals), {"environments": snapshots}

    def place(self, states: States) -> States:
        """Where the layout keeps them."""
        return self.layout.place(states, self._spread)  # type: ignore[no-any-return]

    def unroll(self, params: dict[str, Tree], episodes: Episodes) -> Rolled:
        """T steps of every environment; the unrolls are views of the buffers."""
        began = time.perf_counter()
        leaves = {name: jax.tree.leaves(tree) for name, tree in params.items()}
        for name, act in self._rolling.items():
            act.begin(self._buffers[name], leaves[name], self._step + 1)
        acts = list(self._rolling.values())
        times = roll_out(acts, self._steps, self._length, self._tick)
        self._step += self._length
        unrolls, recalls = {}, {}
        for k, (name, act) in enumerate(self._rolling.items()):
            series = episodes if len(acts) == 1 else [episodes[k]]
            ended: list[list[Ended]] = [[] for _ in series]
            act.finish(params[name], leaves[name], ended)
            for found, new in zip(series, ended, strict=True):
                found += [(1, e.episode_return, e.length) for e in new]
            unroll = self._buffers[name].assemble(act.start)
            unrolls[name] = unmarked(unroll) if self._unmarked[name] and all_valid(unroll) else unroll
            recalls[name] = Recall(self._buffers[name].seen(), act.drawn) if self._inside[name] else None
        troubles = [trouble for env in self._environments for trouble in take_troubles(env)]
        return Rolled(unrolls, recalls, time.perf_counter() - began - times.stepping, times.stepping, troubles)

    def _tick(self) -> None:
        self.moved += 1

    def learned(self) -> None:
        """The buffers are free: what followed the unrolls begins the next ones."""
        for buffer in self._buffers.values():
            buffer.roll()

    def close(self) -> None:
        """Close the environments."""
        for env in self._environments:
            env.close()
        self._environments = []

    def _open(self) -> None:
        self.close()
        self._rolling = {}
        for k in range(self._batches):
            self._environments.append(self.make(self.envs, self.seed + k))

    def _add(self, actor: Actor, carry: Tree, keys: Array) -> None:
        act = RollingAct(self.acts[actor.name], keys, carry, self._rows, actor.team)
        act.buffer = self._buffers[actor.name]
        self._rolling[actor.name] = act

    def _stepper(self) -> Stepper:
        spec = self._environments[0].spec
        self._steps = Stepper(self._environments, list(self._rolling.values()), spec, self.envs)
        return self._steps

    def _state(self, stands: dict[str, Any], step: Any, totals: dict[str, Any]) -> HostState:
        nothing = np.zeros(self._rows, np.float64), np.zeros(self._rows, np.int64)
        return HostState(
            {
                name: ActState(
                    carry,
                    keys,
                    tree_map(np.copy, self._buffers[name].outs[0]._replace(final_observation=None)),
                    *totals.get(name, nothing),
                )
                for name, (carry, keys) in stands.items()
            },
            step,
        )


class JaxRoll:
    """JAX environments with host code further down the graph: one program rolls them out."""

    def __init__(self, graph: Graph, source: EnvSource, layout: Layout, envs: int, seed: int) -> None:
        assert source.pure is not None
        self.layout = layout
        self.acts: dict[str, Any] = {}
        self.moved = 0
        actors = actors_of(graph)
        self._names = [actor.name for actor in actors]
        rollout = make_rollout(actors, source.pure)
        self._follower = Follower(source.pure)
        self.env_steps = envs * actors[0].algorithm.unroll
        self._init, self._unroll = jax.jit(rollout.init), jax.jit(rollout.unroll, donate_argnums=(1,))
        self._arguments = layout.place((np.int32(seed), np.arange(envs, dtype=np.int32)), Spread.SHARED)
        self._state: Any = None

    def init(self, flow: Flow) -> States:
        """Fresh states of the flow's pure part."""
        return jax.jit(flow.init_pure)(self._arguments[0])  # type: ignore[no-any-return]

    def start(self) -> None:
        """Begin the environments."""
        self._state = self._init(*self._arguments)

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Always exact."""
        self._state = self.layout.place(tree, Spread.SHARED)
        self._follower.forget()
        return []

    def template(self, flow: Flow) -> tuple[States, Tree]:
        """Structures, shapes and dtypes."""
        states = jax.eval_shape(flow.init_pure, jax.ShapeDtypeStruct((), np.int32))
        return states, jax.eval_shape(self._init, *self._arguments)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The state of the rollout."""
        return self._state, {}

    def place(self, states: States) -> States:
        """On the device."""
        return self.layout.place(states, Spread.SHARED)  # type: ignore[no-any-return]

    def unroll(self, params: dict[str, Tree], episodes: Episodes) -> Rolled:
        """T steps of every environment."""
        began = time.perf_counter()
        now = self._state._replace(env=self._follower.follow(self._state.env))
        self._state, unrolls, slices = self._unroll(params, now)
        series = jax.device_get(slices)
        for k, name in enumerate(self._names):  # not in the order of the dict: a program sorts it
            episodes[k] += episodes_of(series[name])
        return Rolled(unrolls, {}, time.perf_counter() - began, 0.0)

    def learned(self) -> None:
        """Nothing is shared."""

    def close(self) -> None:
        """Nothing to free."""
