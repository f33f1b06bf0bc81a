"""Uniform replay: every step that is held is drawn with the same probability.

A replay is a frozen dataclass of settings with pure functions of its state, as an algorithm is. It is the code of a
store: ``weft.graph.store`` says what that must have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import FrameStack
from weft.core.types import Array, Metrics, Transitions, Tree, Unroll
from weft.ops.rewards import Together, of_team, reshaped
from weft.replay.returns import transitions
from weft.replay.ring import Ring, empty, insert

AHEAD = 2**25
"""Bytes of batches that may be drawn in one go."""

MAX_STEPS = 2**31 - 1
"""Steps are numbered in 32 bits."""


class Held(NamedTuple):
    """The state of a replay."""

    ring: Ring
    key: Array  # [] of its draws
    drawn: Array  # [] int32: batches so far


@dataclass(frozen=True)
class UniformReplay:
    """Keeps the newest ``capacity`` steps, in whole unrolls, and gives batches of them. Its state is a ``Held``."""

    capacity: int = 100_000  # steps of all environments together
    batch: int = 64  # steps in a batch
    samples_per_insert: float = 8.0  # how often a step is drawn on average, as long as it is held
    begin: int = 1_000  # steps that are held before the first batch is drawn
    n_step: int = 1
    discount: float = 0.99
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this, each before they are added up
    team_reward: Together | None = None  # of a group of agents: what becomes of their rewards, before all that
    lanes: int = 1  # that bring unrolls in turn, each of environments of its own
    frames: FrameStack | None = None  # where observations are stacks: each frame is stored once

    # ---- sizes, from the shapes of an unroll ------------------------------------------------------------------------

    def slots(self, unroll: Unroll) -> int:
        """Unrolls that are kept."""
        return max(1, self.capacity // _steps(unroll))

    def draws(self, unroll: Unroll) -> int:
        """Batches that are drawn for each unroll: the ratio's, rounded to a whole number."""
        return max(1, round(self.samples_per_insert * _steps(unroll) / self.batch))

    def fills(self, unroll: Unroll) -> int:
        """Unrolls that are only kept, before the first of which something is drawn."""
        return max(1, math.ceil(self.begin / _steps(unroll))) - 1

    def check(self, owner: str, length: int, envs: int) -> None:
        """Raise ConfigError where nothing could be drawn; ``owner`` names whose settings they are."""
        steps = length * envs
        for name in ("capacity", "batch", "n_step", "begin"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{owner}: {name} must be at least 1, got {getattr(self, name)}")
        if not (math.isfinite(self.samples_per_insert) and self.samples_per_insert > 0):
            raise ConfigError(f"{owner}: samples_per_insert must be above 0, got {self.samples_per_insert}")
        if self.capacity < self.batch:
            raise ConfigError(
                f"{owner}: a replay of {self.capacity:,} steps is smaller than a batch of {self.batch:,}. Choose a "
                f"capacity of at least {self.batch:,}, or a smaller batch."
            )
        if self.capacity < steps:
            raise ConfigError(
                f"{owner}: a replay of {self.capacity:,} steps does not hold one unroll of {length} steps x {envs} "
                f"environments, {steps:,} in all. Choose a larger capacity, a shorter unroll or fewer environments."
            )
        if self.capacity > MAX_STEPS:
            raise ConfigError(f"{owner}: a replay holds at most {MAX_STEPS:,} steps, got {self.capacity:,}")
        if self.begin > self.capacity // steps * steps:
            raise ConfigError(
                f"{owner}: drawing would begin with {self.begin:,} steps, and a replay of {self.capacity:,} holds "
                f"{self.capacity // steps * steps:,} in whole unrolls: it would never begin."
            )
        if round(self.samples_per_insert * steps / self.batch) < 1:
            least = math.ceil(self.batch / self.samples_per_insert)
            raise ConfigError(
                f"{owner}: an unroll of {length} steps x {envs} environments brings {steps:,} steps, and "
                f"{self.samples_per_insert:g} samples for each are less than half a batch of {self.batch}. Use unrolls "
                f"of {least:,} steps in all, a smaller batch, or more samples_per_insert."
            )

    def share(self, shards: int) -> Self:
        """What one of so many shards keeps: its part of the capacity, and of what is kept before it begins."""
        return replace(self, capacity=-(-self.capacity // shards), begin=-(-self.begin // shards))

    def of_learners(self, learners: int) -> Self:
        """What one of so many learners has, each of which learns from its part of every batch."""
        capacity, begin = -(-self.capacity // learners), -(-self.begin // learners)
        return replace(self, capacity=capacity, begin=begin, batch=part_of(self.batch, learners))

    def of_lanes(self, lanes: int) -> Self:
        """The same, for unrolls that so many lanes bring in turn."""
        return replace(self, lanes=lanes)

    def of_frames(self, frames: FrameStack) -> Self:
        """The same, for observations that are such stacks."""
        return replace(self, frames=frames)

    # ---- the store --------------------------------------------------------------------------------------------------

    def init(self, unroll: Unroll, key: Array) -> Tree:
        """An empty replay for unrolls of these shapes."""
        ring = empty(jax.eval_shape(self._shaped, unroll), self.slots(unroll), self.lanes, self.frames)
        return Held(ring, key, jnp.int32(0))

    def insert(self, held: Tree, unroll: Unroll, same: Array | bool = True, lane: Array | int = 0) -> Tree:
        """Keep an unroll, in place of the oldest where the replay is full.

        ``same`` (``[B]``): False where it is known not to follow the newest unroll of its ``lane``.
        """
        return held._replace(ring=insert(held.ring, self._shaped(unroll), same, lane, self.frames))

    def _shaped(self, unroll: Unroll) -> Unroll:
        reward = unroll.reward if self.team_reward is None else of_team(unroll.reward, self.team_reward)
        return unroll._replace(reward=reshaped(reward, self.reward_scale, self.reward_clip))

    def draw(self, held: Tree) -> tuple[Tree, Transitions]:
        """A batch, drawn with replacement."""
        key, ring = jax.random.fold_in(held.key, held.drawn), held.ring
        position = jax.random.randint(key, (self.batch,), 0, ring.held * ring.length * ring.envs)
        batch = transitions(ring, position, self.n_step, self.discount, self.frames)
        return held._replace(drawn=held.drawn + 1), batch

    def draw_ahead(self, held: Tree, times: int) -> tuple[Tree, Transitions] | None:
        """The next ``times`` batches in one go, ``[times, N, ...]``: what so many calls of ``draw`` would give.

        None where they may be too large to lie in memory at once, and where draws depend on what learn tells.
        """
        if type(self).draw is not UniformReplay.draw:
            return None
        one = jax.eval_shape(lambda held: self.draw(held)[1], held)
        if times * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(one)) > AHEAD:
            return None
        ring = held.ring
        keys = jax.vmap(jax.random.fold_in, (None, 0))(held.key, held.drawn + jnp.arange(times, dtype=jnp.int32))
        most = ring.held * ring.length * ring.envs
        position = jax.vmap(lambda key: jax.random.randint(key, (self.batch,), 0, most))(keys)
        flat = transitions(ring, position.reshape(-1), self.n_step, self.discount, self.frames)
        several = jax.tree.map(lambda x: x.reshape((times, self.batch, *x.shape[1:])), flat)
        return held._replace(drawn=held.drawn + times), several

    def feedback(self, held: Tree, message: Tree) -> Tree:
        """Nothing depends on what learn says of a batch."""
        return held

    def waits(self, held: Tree) -> Array:
        """[] int32: unrolls that are only kept from now on, before something is drawn."""
        steps = held.ring.length * held.ring.envs
        return jnp.maximum(0, max(1, math.ceil(self.begin / steps)) - 1 - held.ring.inserted)

    def figures(self, held: Tree) -> Metrics:
        """What is counted, in steps: inserted = held + evicted; and how many were drawn."""
        ring = held.ring
        each = jnp.float32(ring.length * ring.envs)
        return {
            "inserted": ring.inserted * each,
            "held": ring.held * each,
            "evicted": (ring.inserted - ring.held) * each,
            "sampled": held.drawn * jnp.float32(self.batch),
        }


def part_of(batch: int, learners: int) -> int:
    """What one of so many learners has of a batch; ConfigError where it does not come out even."""
    if batch % learners:
        raise ConfigError(
            f"{learners} learners share every batch, and {learners} does not divide a batch of {batch}. Choose another "
            "batch, or another number of learners."
        )
    return batch // learners


def _steps(unroll: Any) -> int:
    """Environment steps in an unroll."""
    return int(unroll.reward.shape[0] * unroll.reward.shape[1])
