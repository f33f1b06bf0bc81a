"""The actor side of a worker: environments and act together, as in one process, with learn elsewhere.

Environments write straight into the slot that goes to learn. A JAX environment is rolled out by one compiled program.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from weft.core.types import Tree
from weft.envs.protocol import HostEnv, HostFactory, JaxEnv
from weft.runtimes.blocks import fill, seen
from weft.runtimes.processes.acting import EPISODES_SECONDS, Acting
from weft.runtimes.processes.outlet import Outlet
from weft.runtimes.rollout import make_rollout
from weft.runtimes.unroll_buffer import UnrollBuffer


class Telling:
    """Tells the launcher of finished episodes, not too often."""

    def __init__(self, acting: Acting) -> None:
        self._link, self._told = acting.post.link, time.monotonic()
        self.episodes: list[list[tuple[int, float, int]]] = [[]]

    def tell(self) -> None:
        """Say what there is to say, if it is time."""
        if self.episodes[0] and time.monotonic() - self._told > EPISODES_SECONDS:
            self._link.say("episodes", {"episodes": self.episodes[0]})
            self.episodes, self._told = [[]], time.monotonic()


class HostActor:
    """Host environments and act; ``run`` returns only by an exception."""

    def __init__(self, acting: Acting, outlet: Outlet, make: HostFactory, seed: int) -> None:
        self.acting, self.outlet, self.make, self.seed, self.post = acting, outlet, make, seed, acting.post
        self.lane = outlet.lane
        self._env: HostEnv | None = None
        self._telling = Telling(acting)
        self._keys = acting.keys_of(self.lane)

    def start(self) -> None:
        """Make the environments."""
        self._env = self.make(self.lane.rows, self.seed, self.lane.first)

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end and what the environment raises."""
        env, rows = self._env, self.lane.rows
        assert env is not None
        buffer = self._reserve()
        env.reset(buffer.outs[0])
        carry: Tree = self.acting.programs.init(np.int32(self.seed), np.arange(rows, dtype=np.int32))[2]
        totals = np.zeros(rows, np.float64), np.zeros(rows, np.int64)
        while True:
            carry = self._unroll(env, buffer, carry)
            totals = buffer.count_episodes(*totals, self._telling.episodes)
            self.outlet.commit(self.acting.weights.version)
            self._telling.tell()
            before, buffer = buffer, self._reserve()
            before.roll(into=buffer)

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
        noise = buffer.by_step(jax.tree.map(np.asarray, drawn))
        carry = start
        for t in range(buffer.length):
            acted = programs.act(leaves, carry, buffer.views[t], noise[t])
            action, carry = _remember(buffer, t, acted, programs.recalls), acted.carry
            env.step(action, buffer.outs[t + 1])
            buffer.note_cuts(t, carry)
            outlet.count(1)
            post.tick()
        buffer.finish(acting.weights.params, carry, programs.bootstrap)
        if block.extras and programs.recalls:
            extras = programs.extras(leaves, start, seen(block), drawn)
            jax.tree.map(lambda place, x: np.copyto(place, np.asarray(x)), block.extras, extras)
        return carry


def _remember(buffer: UnrollBuffer, t: int, acted: Any, recalls: bool) -> Any:
    if not recalls:
        return buffer.remember(t, acted)
    action = np.asarray(acted.action)
    buffer.block.action[t] = action
    return action


class JaxActor:
    """JAX environments and act, rolled out by one program; ``run`` returns only by an exception."""

    def __init__(self, acting: Acting, outlet: Outlet, env: JaxEnv, seed: int) -> None:
        self.acting, self.outlet, self.seed, self.lane, self.post = acting, outlet, seed, outlet.lane, acting.post
        rollout = make_rollout(acting.algorithm, env)
        self._init, self._roll = jax.jit(rollout.init), jax.jit(rollout.unroll, donate_argnums=(1,))
        self._telling = Telling(acting)

    def start(self) -> None:
        """Start the environments."""
        indices = np.arange(self.lane.first, self.lane.first + self.lane.rows, dtype=np.int32)
        self._state = self._init(np.int32(self.seed), indices)

    def run(self) -> None:
        """Make unrolls, for ever; raises Stopped at the run's end."""
        acting, outlet = self.acting, self.outlet
        while True:
            while (buffer := acting.begin(outlet)) is None:
                acting.post.wait()
            self._state, unroll, slices = self._roll(acting.weights.params, self._state)
            fill(buffer.block, jax.device_get(unroll))
            outlet.count(buffer.length)
            ended = jax.device_get(slices)
            at = np.nonzero(ended.episodes)
            rows = zip(ended.episodes[at], ended.return_sum[at], ended.length_sum[at], strict=True)
            self._telling.episodes[0] += [(int(n), float(total), int(length)) for n, total, length in rows]
            outlet.commit(acting.weights.version)
            acting.post.tick()
            self._telling.tell()

    def close(self) -> None:
        """Nothing to free."""
