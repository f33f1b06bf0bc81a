"""Replay of whole sequences, for recurrent networks (R2D2: Kapturowski et al., ICLR 2019).

What is drawn is an unroll of one environment, as it was stored, with the carry that act had before it. That carry was
made by older params; so the unroll before it comes along, where it is stored and led up to it, and the network is run
over that first (its *burn-in*), from the carry that act had before that one.

    drawn    | unroll s - 1, burn-in only | unroll s, learned from |     a priority for each unroll of each environment
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import FrameStack
from weft.core.types import Array, Earlier, Metrics, Priorities, Sequences, Tree, Unroll
from weft.replay import sum_tree
from weft.replay.prioritised import LEAST, PrioritisedReplay, weights
from weft.replay.returns import Place, seen
from weft.replay.ring import Ring, insert


class HeldSequences(NamedTuple):
    """The state of a replay of sequences."""

    ring: Ring
    key: Array  # [] of its draws
    drawn: Array  # [] int32: batches so far
    tree: Array  # [2 P] of the priorities to the power of alpha, by slot and environment
    highest: Array  # [] float32: the highest of them so far
    refused: Array  # [] int32: priorities that came for unrolls no longer held, or that were no finite numbers
    first: Array  # [S, T, B] bool
    carry: Tree  # [S, B, ...]


@dataclass(frozen=True)
class SequenceReplay(PrioritisedReplay):
    """Keeps the newest ``capacity`` steps, in whole unrolls, and gives batches of ``batch`` sequences.

    Its state is a ``HeldSequences``. With an ``alpha`` of 0 all are drawn alike. ``n_step`` and ``discount`` are not
    used: returns are found where values of the whole sequence are at hand.
    """

    burn_in: bool = True  # the unroll before comes along

    def draws(self, unroll: Unroll) -> int:
        """Batches that are drawn for each unroll: a sequence has as many steps as an unroll of one environment."""
        return max(1, round(self.samples_per_insert * int(unroll.reward.shape[1]) / self.batch))

    def check(self, owner: str, length: int, envs: int) -> None:
        """Raise ConfigError where nothing could be drawn."""
        super().check(owner, length, envs)
        if self.capacity < self.batch * length:
            most, least = self.capacity // length, self.batch * length
            raise ConfigError(
                f"{owner}: a replay of {self.capacity:,} steps holds {most:,} sequences of {length}, and a batch has "
                f"{self.batch:,}. Choose a capacity of at least {least:,}, or a smaller batch."
            )
        if round(self.samples_per_insert * envs / self.batch) < 1:
            raise ConfigError(
                f"{owner}: {envs} environments bring {envs} sequences at a time; {self.samples_per_insert:g} samples "
                f"of each are less than half a batch of {self.batch} sequences. Use more environments, a smaller "
                "batch, or more samples_per_insert."
            )

    def init(self, unroll: Unroll, key: Array) -> Tree:
        """An empty replay for unrolls of these shapes."""
        held = super().init(unroll, key)
        ring, slots = held.ring, held.ring.slots
        carry = jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), unroll.carry)
        tree = sum_tree.empty_tree(slots * ring.envs)
        first = jnp.zeros(ring.reward.shape, jnp.bool_)
        return HeldSequences(ring, held.key, held.drawn, tree, held.highest, held.refused, first, carry)

    def insert(self, held: Tree, unroll: Unroll, same: Array | bool = True, lane: Array | int = 0) -> Tree:
        """Keep an unroll; its sequences have the highest priority, but for those without a valid record."""
        ring = held.ring
        slot = ring.inserted % ring.slots
        priority = jnp.full(ring.envs, held.highest)
        if unroll.valid is not None:
            priority = jnp.where(unroll.valid.any(0), priority, 0.0)
        return held._replace(
            ring=insert(ring, self._shaped(unroll), same, lane, self.frames),
            tree=sum_tree.update(held.tree, slot * ring.envs + jnp.arange(ring.envs), priority),
            first=held.first.at[slot].set(unroll.first),
            carry=jax.tree.map(lambda all_, one: all_.at[slot].set(one), held.carry, unroll.carry),
        )

    def draw(self, held: Tree) -> tuple[Tree, Sequences]:  # type: ignore[override]
        """A batch, one sequence out of each of N equal shares of the priorities' sum."""
        key, ring = jax.random.fold_in(held.key, held.drawn), held.ring
        share = (jnp.arange(self.batch) + jax.random.uniform(key, (self.batch,))) / self.batch
        found = sum_tree.find(held.tree, share)
        slot, env = jnp.divmod(found.leaf, ring.envs)
        count = (ring.held * ring.envs).astype(jnp.float32)
        usable = jnp.ones(slot.shape, jnp.float32)
        weight = weights(count, found.priority, found.total, usable, self._beta(held.drawn))
        batch = sequences(held, slot, env, self.frames)._replace(weight=weight)
        if self.burn_in:
            batch = batch._replace(earlier=_earlier(held, slot, env, self.frames))
        return held._replace(drawn=held.drawn + 1), batch

    def feedback(self, held: Tree, message: Priorities) -> Tree:
        """New priorities of sequences that were drawn. What is stale or no finite number is counted, and no more."""
        position, number = message.ids[:, 0], message.ids[:, 1]
        good = jnp.isfinite(message.priority) & (held.ring.number(position // held.ring.envs) == number)
        powered = (jnp.abs(message.priority) + LEAST) ** self.alpha
        good &= sum_tree.leaf(held.tree, position) > 0
        tree = sum_tree.update(held.tree, jnp.where(good, position, -1), powered)
        highest = jnp.maximum(held.highest, jnp.max(jnp.where(good, powered, 0.0)))
        return held._replace(tree=tree, highest=highest, refused=held.refused + (~good).sum(dtype=jnp.int32))

    def figures(self, held: Tree) -> Metrics:
        """In steps, as those of other replays."""
        return super().figures(held) | {"sampled": held.drawn * jnp.float32(self.batch * held.ring.length)}


def sequences(held: HeldSequences, slot: Array, env: Array, frames: FrameStack | None = None) -> Sequences:
    """The unrolls in ``slot`` of ``env`` (``[N]`` each), all with weight 1 and nothing before them."""
    ring = held.ring
    length = ring.length
    step = jnp.arange(length)[:, None]  # [T, 1]

    def along(x: Any) -> jax.Array:
        return jnp.moveaxis(x[slot, :length, env], 0, 1)

    def along_all(tree: Tree) -> Tree:
        return jax.tree.map(along, tree)

    terminated = along(ring.terminated)
    truncated = along(ring.truncated) & ~terminated
    cut = ring.cut[slot, :, env]  # [N, F]
    matches = cut[None] == step[..., None]  # [T, N, F]
    found = matches.any(-1)
    row = jnp.broadcast_to(step + 1, truncated.shape)
    if cut.shape[1]:
        row = jnp.where(truncated & found, length + 1 + matches.argmax(-1), row)
    return Sequences(
        observation=seen(ring, Place(slot[None], jnp.broadcast_to(step, row.shape), env[None]), frames),
        first=along(held.first),
        action=along_all(ring.action),
        reward=along(ring.reward),
        terminated=terminated,
        truncated=truncated,
        following=seen(ring, Place(slot[None], row, env[None]), frames),
        known=~truncated | found,
        valid=jnp.ones_like(terminated) if ring.valid is None else along(ring.valid),
        carry=jax.tree.map(lambda x: x[slot, env], held.carry),
        weight=jnp.ones(slot.shape, jnp.float32),
        ids=jnp.stack([slot * ring.envs + env, ring.number(slot)], axis=-1),
        action_mask=None if ring.action_mask is None else along(ring.action_mask),
        following_mask=_following_mask(ring, slot, env, truncated),
    )


def _earlier(held: HeldSequences, slot: Array, env: Array, frames: FrameStack | None) -> Earlier:
    """The unrolls that led up to those in ``slot``."""
    ring = held.ring
    number = ring.earlier[slot]
    before = number % ring.slots
    there = sequences(held, before, env, frames)
    joined = ring.continues[before, env] & (number >= 0) & (ring.number(before) == number)
    return Earlier(there.observation, there.first, there.carry, joined)


def _following_mask(ring: Ring, slot: Array, env: Array, truncated: Array) -> Array | None:
    """The mask of the step after each, in the same unroll; after the last step, and a cut, all are allowed."""
    if ring.action_mask is None:
        return None
    mask = jnp.moveaxis(ring.action_mask[slot, :, env], 0, 1)
    after = jnp.concatenate([mask[1:], jnp.ones_like(mask[:1])])
    return after | truncated[..., None]
