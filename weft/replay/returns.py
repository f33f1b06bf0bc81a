"""What is drawn: steps of a ring with their n-step returns, computed when they are drawn and not when they are stored.

A return runs on while steps follow each other: it ends with an episode, before a record that is not valid, and where
nothing more is stored. Then it is shorter than n, and what was seen at its end is still the right thing to value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.specs import FrameStack
from weft.core.types import Array, Transitions
from weft.replay.frames import frames_in_slot, joined, rows_of
from weft.replay.ring import Ring


class Place(NamedTuple):
    """Where steps, or rows of observations, lie in a ring: ``[N]`` int32 each."""

    slot: Array
    step: Array
    env: Array


def place_of(ring: Ring, position: Array) -> Place:
    """The place of each position (``[N]``, in ``[0, S * T * B)``)."""
    rest, env = jnp.divmod(position, ring.envs)
    slot, step = jnp.divmod(rest, ring.length)
    return Place(slot, step, env)


def transitions(ring: Ring, position: Array, n: int, discount: float, frames: FrameStack | None = None) -> Transitions:
    """The steps at ``position`` (``[N]``), each with its return over at most ``n`` steps; weights are 1, or 0.

    A step has weight 0 where its record is not valid, or where it was cut and its final observation is not stored.
    Where the ring has no observations, ``observation`` and ``following`` are their places.
    """
    start = at = place_of(ring, position)
    reward = jnp.zeros(position.shape, jnp.float32)
    gain = jnp.ones(position.shape, jnp.float32)  # discount to the power of the steps so far
    going = jnp.ones(position.shape, jnp.bool_)
    for k in range(n):
        reward += jnp.where(going, gain * ring.reward[at], 0.0)
        gain = jnp.where(going, gain * discount, gain)
        if k + 1 < n:
            following, there = _after(ring, at)
            going &= there & ~ring.terminated[at] & ~ring.truncated[at] & _is_valid(ring, following)
            at = Place(*(jnp.where(going, b, a) for a, b in zip(at, following, strict=True)))
    terminated, truncated = ring.terminated[at], ring.truncated[at] & ~ring.terminated[at]
    following, there = _after(ring, at)
    row = jnp.where(there, following.step, ring.length)  # of what followed, in its slot
    slot = jnp.where(there, following.slot, at.slot)
    known = jnp.ones(position.shape, jnp.bool_)
    if ring.cut.shape[1]:
        matches = ring.cut[at.slot, :, at.env] == at.step[:, None]  # [N, F]
        known = matches.any(-1)
        final = ring.length + 1 + matches.argmax(-1)
        row, slot = jnp.where(truncated, final, row), jnp.where(truncated, at.slot, slot)
    else:
        known = ~truncated
    usable = _is_valid(ring, start) & (known | ~truncated)
    return Transitions(
        observation=seen(ring, start, frames),
        action=jax.tree.map(lambda x: x[start], ring.action),
        reward=reward,
        discount=jnp.where(terminated, 0.0, gain),
        following=seen(ring, Place(slot, row, at.env), frames),
        weight=usable.astype(jnp.float32),
        ids=jnp.stack([position, ring.number(start.slot)], axis=-1),
        action_mask=None if ring.action_mask is None else ring.action_mask[start],
        following_mask=_mask(ring, following, there & ~truncated),
    )


def seen(ring: Ring, at: Place, frames: FrameStack | None = None) -> Any:
    """The observations in the rows ``at``; their places, or those of their frames, where the ring has none."""
    if frames is not None:
        assert ring.begun is not None
        cut, before = None, at.step
        if ring.cut.shape[1]:
            final = at.step - ring.length - 1
            cut = jnp.where(final >= 0, ring.cut[at.slot, jnp.maximum(final, 0), at.env], -1)
            before = jnp.where(final >= 0, jnp.maximum(cut, 0), at.step)
        step = frames_in_slot(frames, ring.length, at.step, cut, ring.begun[at.slot, before, at.env])
        step = jnp.where(step < 0, rows_of(frames, ring.length, ring.cut.shape[1]) - 1, step)
        at = Place(at.slot[..., None], step, at.env[..., None])
    if ring.observation is None:
        return at
    found = jax.tree.map(lambda x: x[at], ring.observation)
    return found if frames is None else jax.tree.map(lambda x: joined(x, frames, at.step.ndim - 1), found)


def _after(ring: Ring, at: Place) -> tuple[Place, Array]:
    """The step after each, and whether it is stored."""
    inside = at.step + 1 < ring.length
    slot = jnp.where(inside, at.slot, ring.after[at.slot])
    following = Place(slot, jnp.where(inside, at.step + 1, 0), at.env)
    return following, inside | ring.continues[at.slot, at.env]


def _is_valid(ring: Ring, at: Place) -> Any:
    return jnp.ones(at.slot.shape, jnp.bool_) if ring.valid is None else ring.valid[at]


def _mask(ring: Ring, at: Place, known: Array) -> Array | None:
    return None if ring.action_mask is None else ring.action_mask[at] | ~known[:, None]
