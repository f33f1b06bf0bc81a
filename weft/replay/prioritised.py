"""Prioritised replay (Schaul et al., arXiv 1511.05952), the proportional variant.

A step is drawn with a probability in proportion to ``priority ** alpha``. New steps have the highest priority that any
step has had; learn says after each batch what the priorities of its steps are now. Importance weights correct for the
steps that are drawn more often than others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.types import Array, Metrics, Priorities, Transitions, Tree, Unroll
from weft.replay import sum_tree
from weft.replay.returns import transitions
from weft.replay.ring import Ring, insert
from weft.replay.uniform import UniformReplay

LEAST = 1e-6
"""Added to every priority, so that no step is never drawn again."""

TINY = 1e-30
"""Below every probability and every weight that occurs: what would be divided by 0 is divided by this."""


class HeldByPriority(NamedTuple):
    """The state of a prioritised replay."""

    ring: Ring
    key: Array  # [] of its draws
    drawn: Array  # [] int32: batches so far
    tree: Array  # [2 P] of the priorities to the power of alpha, by position
    highest: Array  # [] float32: the highest of them so far
    refused: Array  # [] int32: priorities that came for steps no longer held, or that were no finite numbers


@dataclass(frozen=True)
class PrioritisedReplay(UniformReplay):
    """As ``UniformReplay``, but draws by priority. Its state is a ``HeldByPriority``."""

    alpha: float = 0.6  # 0: every step alike; 1: in proportion to its priority
    beta: float = 0.4  # how far importance weights correct for that when learning begins; 1: in full
    beta_draws: int = 0  # batches over which beta grows to 1; 0: it stays

    def check(self, owner: str, length: int, envs: int) -> None:
        """Raise ConfigError where nothing could be drawn."""
        super().check(owner, length, envs)
        for name in ("alpha", "beta"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{owner}: {name} must be between 0 and 1, got {getattr(self, name)}")

    def share(self, shards: int) -> Self:
        """Also its part of the draws, over which beta grows."""
        return replace(super().share(shards), beta_draws=-(-self.beta_draws // shards))

    def init(self, unroll: Unroll, key: Array) -> Tree:
        """An empty replay for unrolls of these shapes."""
        held = super().init(unroll, key)
        tree = sum_tree.empty_tree(held.ring.slots * held.ring.length * held.ring.envs)
        return HeldByPriority(held.ring, held.key, held.drawn, tree, jnp.float32(1.0), jnp.int32(0))

    def insert(self, held: Tree, unroll: Unroll, same: Array | bool = True, lane: Array | int = 0) -> Tree:
        """Keep an unroll; its valid steps have the highest priority."""
        steps = held.ring.length * held.ring.envs
        position = held.ring.inserted % held.ring.slots * steps + jnp.arange(steps)
        priority = jnp.full(steps, held.highest)
        if unroll.valid is not None:
            priority = jnp.where(unroll.valid.reshape(-1), priority, 0.0)
        tree = sum_tree.update(held.tree, position, priority)
        return held._replace(ring=insert(held.ring, self._shaped(unroll), same, lane, self.frames), tree=tree)

    def draw(self, held: Tree) -> tuple[Tree, Transitions]:
        """A batch, one step out of each of N equal shares of the priorities' sum."""
        key, ring = jax.random.fold_in(held.key, held.drawn), held.ring
        share = (jnp.arange(self.batch) + jax.random.uniform(key, (self.batch,))) / self.batch
        found = sum_tree.find(held.tree, share)
        batch = transitions(ring, found.leaf, self.n_step, self.discount, self.frames)
        steps = (ring.held * ring.length * ring.envs).astype(jnp.float32)
        weight = weights(steps, found.priority, found.total, batch.weight, self._beta(held.drawn))
        return held._replace(drawn=held.drawn + 1), batch._replace(weight=weight)

    def feedback(self, held: Tree, message: Priorities) -> Tree:
        """New priorities of steps that were drawn. What is stale or no finite number changes nothing, and is counted.

        Stale is what was overwritten since it was drawn: its place holds another step now.
        """
        position, number = message.ids[:, 0], message.ids[:, 1]
        slot = position // (held.ring.length * held.ring.envs)
        good = jnp.isfinite(message.priority) & (held.ring.number(slot) == number)
        powered = (jnp.abs(message.priority) + LEAST) ** self.alpha
        was = sum_tree.leaf(held.tree, position)
        good &= was > 0  # a record that is not valid is never drawn, also not by a rounding
        tree = sum_tree.update(held.tree, jnp.where(good, position, -1), powered)
        highest = jnp.maximum(held.highest, jnp.max(jnp.where(good, powered, 0.0)))
        return held._replace(tree=tree, highest=highest, refused=held.refused + (~good).sum(dtype=jnp.int32))

    def figures(self, held: Tree) -> Metrics:
        """As of a uniform replay, and how many priorities were refused."""
        return super().figures(held) | {"refused": held.refused.astype(jnp.float32)}

    def _beta(self, drawn: Array) -> jax.Array:
        part = jnp.minimum(drawn / self.beta_draws, 1.0) if self.beta_draws else jnp.float32(0.0)
        return self.beta + (1.0 - self.beta) * part


def weights(steps: Array, priority: Array, whole: Array, usable: Array, beta: Array) -> jax.Array:
    """Importance weights (``[N]``) of steps with these priorities, the highest of those that are ``usable`` 1."""
    weight = (steps * jnp.maximum(priority / whole, TINY)) ** -beta
    weight = weight / jnp.max(jnp.where(usable > 0, weight, 0.0), initial=TINY)
    return jnp.where(usable > 0, weight, 0.0)
