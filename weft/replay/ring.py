"""A ring of whole unrolls: the memory of a replay, as arrays, and how an unroll is written into it.

Every observation is stored once. What a step led to is the observation of the step after it; only where there is none
does a slot have a row more: one for what followed its last step, and one for each episode that it may have cut.

    slot    rows of its observations, T + 1 + F
    s       o[0] o[1] … o[T-1] | what followed | final observations of episodes that were cut
    s + 1   o[T] …             |               |                    ``continues[s]``: o[T] is what followed o[T-1]

A slot is followed by the next one only if that begins where it ended. That is looked at, not assumed: after a worker
has died, or where messages of several lanes take turns, an unroll may be of other episodes than the one before it.

Observations may be kept elsewhere (``on_host.py``): then ``observation``, ``last`` and those of an unroll are None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.types import Array, Tree, Unroll


class Ring(NamedTuple):
    """``S`` slots, each for an unroll of ``T`` steps of ``B`` environments."""

    observation: Tree | None  # [S, T + 1 + F, B, ...]
    action: Tree  # [S, T, B, ...]
    reward: Array  # [S, T, B] float32
    terminated: Array  # [S, T, B] bool
    truncated: Array  # [S, T, B] bool
    cut: Array  # [S, F, B] int32: the step that each final observation belongs to, or -1
    continues: jax.Array  # [S, B] bool: the next slot begins where this one ended
    inserted: Array  # [] int32: unrolls so far
    last: (
        Tree | None
    )  # [B, ...] what followed the newest unroll; a copy, since reading its slot would forbid writing in place
    ended: Array  # [B] bool: an episode ended with its last step
    action_mask: Array | None = None  # [S, T, B, choices]
    valid: Array | None = None  # [S, T, B] bool

    @property
    def slots(self) -> int:
        """S."""
        return int(self.reward.shape[0])

    @property
    def length(self) -> int:
        """T."""
        return int(self.reward.shape[1])

    @property
    def envs(self) -> int:
        """B."""
        return int(self.reward.shape[2])

    @property
    def held(self) -> Array:
        """[] int32: slots that are filled; they are the first ones."""
        return jnp.minimum(self.inserted, self.slots)

    def number(self, slot: Array) -> Array:
        """The number of the unroll that a slot holds, from 0; negative where it is empty."""
        newest = self.inserted - 1
        return newest - (newest - slot) % self.slots


def empty(unroll: Unroll, slots: int) -> Ring:
    """A ring for unrolls like ``unroll`` (arrays or their shapes), with nothing in it."""
    length, envs = unroll.reward.shape
    finals = unroll.finals
    count = 0 if finals is None else finals.step.shape[0]

    def zeros(tree: Any, rows: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((slots, rows, *x.shape[1:]), x.dtype), tree)

    return Ring(
        observation=zeros(unroll.observation, length + 1 + count),
        action=zeros(unroll.action, length),
        reward=zeros(unroll.reward, length),
        terminated=zeros(unroll.terminated, length),
        truncated=zeros(unroll.truncated, length),
        cut=jnp.full((slots, count, envs), -1, jnp.int32),
        continues=jnp.zeros((slots, envs), jnp.bool_),
        inserted=jnp.int32(0),
        last=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), unroll.last_observation),
        ended=jnp.zeros((envs,), jnp.bool_),
        action_mask=zeros(unroll.action_mask, length),
        valid=zeros(unroll.valid, length),
    )


def insert(ring: Ring, unroll: Unroll, same: Array | bool = True) -> Ring:
    """Write an unroll over the oldest one. In place, where the caller gives the ring away.

    ``same`` (``[B]``): whether its first observation is what followed the newest unroll, where the ring does not know.
    """
    slot = ring.inserted % ring.slots
    before = (ring.inserted - 1) % ring.slots
    joined = (ring.inserted > 0) & same & _goes_on(ring, unroll)
    rows = jax.tree.map(
        lambda steps, last, *final: jnp.concatenate([steps, last[None], *final]),
        unroll.observation,
        unroll.last_observation,
        *([] if unroll.finals is None else [unroll.finals.observation]),
    )
    # An environment that may fail leaves its marks out where all records are valid.
    valid = jnp.ones_like(unroll.terminated) if ring.valid is not None and unroll.valid is None else unroll.valid
    kept: dict[str, Tree] = {
        "observation": rows,
        "action": unroll.action,
        "reward": unroll.reward,
        "terminated": unroll.terminated,
        "truncated": unroll.truncated,
        "continues": jnp.zeros_like(joined),
        "action_mask": unroll.action_mask,
        "valid": valid,
    }
    if unroll.finals is not None:
        kept["cut"] = unroll.finals.step

    def write(_: Array, places: dict[str, Tree]) -> dict[str, Tree]:
        places = {**places, "continues": places["continues"].at[before].set(joined)}
        written: dict[str, Tree] = jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, slot, 0), places, kept
        )
        return written

    # Written twice, the same: a loop of one turn is none to XLA, which would then write where it reads as well, into
    # what a batch is drawn from, and copy the whole ring for that.
    places = jax.lax.fori_loop(0, 2, write, {name: getattr(ring, name) for name in kept})
    return ring._replace(
        **places,
        inserted=ring.inserted + 1,
        last=unroll.last_observation,
        ended=unroll.terminated[-1] | unroll.truncated[-1],
    )


def _goes_on(ring: Ring, unroll: Unroll) -> Array:
    """``[B]`` bool: whether an unroll's first observation is what followed the last step of the newest one."""
    same = [ring.ended == unroll.first[0]]
    for kept, now in zip(jax.tree.leaves(ring.last), jax.tree.leaves(unroll.observation), strict=True):
        same.append((kept == now[0]).reshape((ring.envs, -1)).all(-1))
    return jnp.stack(same).all(0)
