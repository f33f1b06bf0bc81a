"""One lane of host environments and everything that acts in it: act, remember, step, note what was cut.

The one host loop: the engine in one process and the workers that hold environments together with inference both call
``roll_out``. Environments write straight into the rows of an unroll's buffer; a step is one call of act for each policy
and one step of the environments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.buffers import of_team, timestep_buffers
from weft.core.specs import EnvSpec
from weft.core.trees import tree_map
from weft.core.types import Array, Timestep, Tree
from weft.envs.protocol import HostEnv
from weft.runtimes.hosted.blocks import seen
from weft.runtimes.hosted.programs import ActPrograms
from weft.runtimes.hosted.unroll_buffer import Ended, UnrollBuffer


class LaneCheckpoint(NamedTuple):
    """Where ``B`` environments and one act stand between two unrolls."""

    carry: Tree  # [B, ...] act's
    timestep: Timestep  # [B, ...] what act sees next, without the final observation
    episode_return: Array  # [B] float64, of the episodes that go on
    episode_length: Array  # [B] int64


class RollingAct:
    """One act's part of a lane: its carry, its noise, the buffer that it fills.

    ``keys`` are ``[B]``, by the environments' indices. Between two unrolls ``carry``, ``totals`` and the buffer's first
    row say where it stands.
    """

    def __init__(self, programs: ActPrograms, keys: Array, carry: Tree, rows: int, team: str = "") -> None:
        self.programs, self.keys, self.team, self.carry = programs, keys, team, carry
        self.totals: tuple[Array, Array] = (np.zeros(rows, np.float64), np.zeros(rows, np.int64))
        self.buffer: UnrollBuffer | None = None
        self.start: Tree = carry
        self.drawn: Tree = None
        self._call: Callable[..., Any] = programs.act.call
        self._given: tuple[Array, ...] = ()
        self._seen: list[Any] = []
        self._noise: list[Any] = []

    def begin(self, buffer: UnrollBuffer, leaves: Sequence[Array], step: int) -> None:
        """A new unroll, into ``buffer``, whose first row is filled; ``leaves`` are the params', ``step`` its first."""
        self.buffer, self.start = buffer, self.carry
        act = self.programs.act
        self._given, self._seen = act.params(leaves), buffer.seen_by(act)
        self.drawn = self.programs.noise(self.keys, np.int32(step))
        self._noise = buffer.by_step(jax.tree.map(np.asarray, self.drawn))

    def act(self, t: int) -> np.ndarray[Any, Any]:
        """The actions of step t, which are remembered."""
        buffer = self.buffer
        assert buffer is not None
        acted = self._call(self._given, self.carry, self._seen[t], self._noise[t])
        if self.programs.recalls:
            return buffer.remember_action(t, acted)
        action, self.carry = buffer.remember(t, acted), acted.carry
        return action

    def finish(self, params: Tree, leaves: Sequence[Array], episodes: list[list[Ended]]) -> None:
        """The unroll is made: value what would have followed, count episodes, and find the extras where kept."""
        buffer = self.buffer
        assert buffer is not None
        buffer.finish(params, self.carry, self.programs.bootstrap)
        self.totals = buffer.count_episodes(*self.totals, episodes)
        block = buffer.block
        if block.extras and self.programs.recalls:
            extras = self.programs.extras(tuple(leaves), self.start, seen(block), self.drawn)
            jax.tree.map(lambda place, x: np.copyto(place, np.asarray(x)), block.extras, extras)

    def checkpoint(self) -> LaneCheckpoint:
        """Where it stands between two unrolls. Views of the buffer's last row: copy what must outlive it."""
        assert self.buffer is not None
        return LaneCheckpoint(self.carry, self.buffer.outs[-1]._replace(final_observation=None), *self.totals)


class Times(NamedTuple):
    """Seconds of one unroll."""

    acting: float
    stepping: float


class Stepper:
    """The environments of a lane, stepped into the buffers of those that act in them.

    Several environments are several seeds, with their rows side by side. Several acts are teams of one environment.
    """

    def __init__(self, environments: list[HostEnv], acts: Sequence[RollingAct], spec: EnvSpec, envs: int) -> None:
        self.environments, self.acts, self.envs = environments, acts, envs
        self._joint = timestep_buffers(spec, (envs,)) if acts[0].team else None

    def step(self, action: Any, t: int) -> None:
        """Step by the actions of step t (by team, where there are teams)."""
        if self._joint is not None:
            self.environments[0].step(action, self._joint)
            self._hand_out(t + 1)
            return
        out = self.acts[0].buffer.outs[t + 1]  # type: ignore[union-attr]
        if len(self.environments) == 1:
            self.environments[0].step(action, out)
            return
        for k, env in enumerate(self.environments):
            env.step(action[k * self.envs : (k + 1) * self.envs], rows_of(out, k, self.envs))

    def reset(self) -> None:
        """Start all of them, into the first rows."""
        self._fill_first(lambda env, k, out: env.reset(out))

    def restore(self, snapshots: list[Any]) -> list[list[int]]:
        """Bring all of them back, into the first rows; of each environment the rows that could not be, exactly."""
        lost: list[list[int]] = []
        self._fill_first(lambda env, k, out: lost.append(env.restore(snapshots[k], out)))
        return lost

    def _fill_first(self, fill: Callable[[HostEnv, int, Timestep], Any]) -> None:
        if self._joint is not None:
            fill(self.environments[0], 0, self._joint)
            self._hand_out(0)
            return
        out = self.acts[0].buffer.outs[0]  # type: ignore[union-attr]
        for k, env in enumerate(self.environments):
            fill(env, k, rows_of(out, k, self.envs) if len(self.environments) > 1 else out)

    def _hand_out(self, t: int) -> None:
        assert self._joint is not None
        for act in self.acts:
            assert act.buffer is not None
            tree_map(np.copyto, act.buffer.outs[t], of_team(self._joint, act.team))


def roll_out(
    acts: Sequence[RollingAct], stepper: Stepper, length: int, tick: Callable[[], None] | None = None
) -> Times:
    """T steps of a lane whose acts have begun; ``tick`` is called after each."""
    clock = time.perf_counter
    acting = stepping = 0.0
    single = acts[0] if not acts[0].team else None
    for t in range(length):
        began = clock()
        action: Any = single.act(t) if single is not None else {act.team: act.act(t) for act in acts}
        now = clock()
        acting += now - began
        stepper.step(action, t)
        for act in acts:
            act.buffer.note_cuts(t, act.carry)  # type: ignore[union-attr]
        stepping += clock() - now
        if tick is not None:
            tick()
    return Times(acting, stepping)


def rows_of(timestep: Timestep, k: int, envs: int) -> Timestep:
    """The rows of the ``k``-th of several batches of ``envs`` environments."""
    return tree_map(lambda x: x[k * envs : (k + 1) * envs], timestep)  # type: ignore[no-any-return]


def kept_rows(lost: Sequence[int], rows: int) -> np.ndarray[Any, Any]:
    """``[rows]`` bool: which environments could be brought back."""
    kept = np.ones(rows, np.bool_)
    kept[list(lost)] = False
    return kept


def bring_back(now: Tree, then: Tree, kept: np.ndarray[Any, Any]) -> Tree:
    """``then`` where rows could be brought back, else ``now``: the one way in which saved rows come back. NumPy."""

    def chosen(fresh: Array, saved: Array) -> Array:
        fresh, saved = np.asarray(fresh), np.asarray(saved)
        return np.where(kept.reshape((-1, *[1] * (saved.ndim - 1))), saved, fresh)

    return jax.tree.map(chosen, now, then)
