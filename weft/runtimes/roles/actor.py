"""The actor side of a worker: environments and act together, as in one process, with learn elsewhere.

Environments write straight into the slot that goes to learn. A JAX environment is rolled out by one compiled program.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.trees import tree_map
from weft.core.types import Tree
from weft.envs.protocol import HostEnv, HostFactory, JaxEnv
from weft.runtimes.compiled.rollout import make_rollout
from weft.runtimes.hosted.blocks import fill, seen
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.roles.acting import Acting
from weft.runtimes.roles.unroll_writer import UnrollWriter
from weft.runtimes.workers.episode_reports import EpisodeReports
from weft.runtimes.workers.lane_checkpoint import LaneCheckpoint, from_words, keep_where, lane_schema, to_words
from weft.runtimes.workers.side import Saved


class HostActor:
    """Host environments and act; ``run`` returns only by an exception."""

    def __init__(self, acting: Acting, outlet: UnrollWriter, make: HostFactory, seed: int) -> None:
        self.acting, self.outlet, self.make, self.seed, self.post = acting, outlet, make, seed, acting.post
        self.lane = outlet.lane
        self._env: HostEnv | None = None
        self._telling = EpisodeReports(acting.post.link)
        self._keys = acting.keys_of(self.lane)
        self._standing: LaneCheckpoint | None = None  # between two unrolls
        self.post.saves = self._saved

    def start(self, leaves: list[Any] | None = None, snapshot: Any = None) -> list[int]:
        """Make the environments, or bring them back to where they stood; the rows that could not be, exactly."""
        rows, environment = self.lane.rows, self.acting.algorithm.spec.environment
        self._env = self.make(rows, self.seed, self.lane.first)
        out = timestep_buffers(environment, (rows,))
        fresh = self.acting.start_carry(rows), np.zeros(rows, np.float64), np.zeros(rows, np.int64)
        if leaves is None or snapshot is None:
            self._env.reset(out)
            self._standing = LaneCheckpoint(fresh[0], out._replace(final_observation=None), *fresh[1:])
            return []
        lost = self._env.restore(snapshot, out)
        kept, then = keep_where(lost, rows), from_words(leaves, lane_schema(self.acting.algorithm, rows))
        now = LaneCheckpoint(fresh[0], out._replace(final_observation=None), *fresh[1:])
        self._standing = jax.tree.map(
            lambda a, b: np.where(kept.reshape((-1, *[1] * (np.ndim(a) - 1))), a, b), then, now
        )
        return lost

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end and what the environment raises."""
        env, stands = self._env, self._standing
        assert env is not None
        assert stands is not None
        buffer = self._reserve()
        tree_map(np.copyto, buffer.outs[0]._replace(final_observation=None), stands.timestep)
        carry, totals = stands.carry, (stands.episode_return, stands.episode_length)
        while True:
            self._standing = None
            carry = self._unroll(env, buffer, carry)
            totals = buffer.count_episodes(*totals, self._telling.episodes)
            self._telling.tell()
            self.outlet.commit(self.acting.weights.version)
            self._standing = LaneCheckpoint(carry, buffer.outs[-1]._replace(final_observation=None), *totals)
            before, buffer = buffer, self._reserve()
            before.roll(into=buffer)

    def _saved(self) -> Saved | None:
        if self._standing is None or self._env is None:
            return None
        body = {"lanes": [self.lane.index], "snapshots": {str(self.lane.index): self._env.snapshot()}}
        return body, to_words(self._standing)

    def close(self) -> None:
        """Close the environments; may be called twice."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _reserve(self) -> UnrollBuffer:
        """Room for an unroll, and params to make it with; waits for both."""
        while (buffer := self.acting.begin(self.outlet)) is None:
            self.acting.post.wait()
        return buffer

    def _unroll(self, env: HostEnv, buffer: UnrollBuffer, start: Tree) -> Tree:
        acting, block = self.acting, buffer.block
        programs, leaves, post, outlet = acting.programs, acting.weights.leaves, acting.post, self.outlet
        jax.tree.map(np.copyto, block.carry, jax.tree.map(np.asarray, start))
        drawn = programs.noise(self._keys, np.int32(outlet.produced + 1))
        host = jax.tree.map(np.asarray, drawn)
        noise = buffer.by_step(host)
        act, given, seen_by_act = programs.act.call, programs.act.params(leaves), buffer.seen_by(programs.act)
        carry = start
        for t in range(buffer.length):
            acted = act(given, carry, seen_by_act[t], noise[t])
            if programs.recalls:
                action = buffer.remember_action(t, acted)
            else:
                action, carry = buffer.remember(t, acted), acted.carry
            env.step(action, buffer.outs[t + 1])
            buffer.note_cuts(t, carry)
            outlet.count(1)
            post.tick()
        buffer.finish(acting.weights.params, carry, programs.bootstrap)
        if block.extras and programs.recalls:
            extras = programs.extras(leaves, start, seen(block), host)
            jax.tree.map(lambda place, x: np.copyto(place, np.asarray(x)), block.extras, extras)
        return carry


class JaxActor:
    """JAX environments and act, rolled out by one program; ``run`` returns only by an exception."""

    def __init__(self, acting: Acting, outlet: UnrollWriter, env: JaxEnv, seed: int) -> None:
        self.acting, self.outlet, self.seed, self.lane, self.post = acting, outlet, seed, outlet.lane, acting.post
        rollout = make_rollout(acting.algorithm, env)
        self._init, self._roll = jax.jit(rollout.init), jax.jit(rollout.unroll, donate_argnums=(1,))
        self._telling = EpisodeReports(acting.post.link)

        self._still = True
        self.post.saves = lambda: ({"lanes": [self.lane.index]}, to_words(self._state)) if self._still else None

    def start(self, leaves: list[Any] | None = None, snapshot: Any = None) -> list[int]:
        """Start the environments, or bring them back to where they stood, always exactly."""
        indices = np.arange(self.lane.first, self.lane.first + self.lane.rows, dtype=np.int32)
        arguments = np.int32(self.seed), indices
        if leaves is None:
            self._state = self._init(*arguments)
        else:
            self._state = jax.device_put(from_words(leaves, jax.eval_shape(self._init, *arguments)))
        return []

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end."""
        acting, outlet = self.acting, self.outlet
        while True:
            while (buffer := acting.begin(outlet)) is None:
                acting.post.wait()
            self._still = False
            self._state, unroll, slices = self._roll(acting.weights.params, self._state)
            fill(buffer.block, jax.device_get(unroll))
            outlet.count(buffer.length)
            ended = jax.device_get(slices)
            at = np.nonzero(ended.episodes)
            rows = zip(ended.episodes[at], ended.return_sum[at], ended.length_sum[at], strict=True)
            self._telling.episodes[0] += [(int(n), float(total), int(length)) for n, total, length in rows]
            self._telling.tell()
            outlet.commit(acting.weights.version)
            self._still = True
            acting.post.tick()

    def close(self) -> None:
        """Nothing to free."""
