"""A ring of whole unrolls: the memory of a replay, as arrays, and how an unroll is written into it.

Every observation is stored once. What a step led to is the observation of the step after it; only where there is none
does a slot have a row more: one for what followed its last step, and one for each episode that it may have cut.

    slot      rows of its observations, T + 1 + F
    s         o[0] o[1] … o[T-1] | what followed | final observations of episodes that were cut
    after[s]  o[T] …             |               |                    ``continues[s]``: o[T] is what followed o[T-1]

Unrolls of several lanes, each of environments of its own, may take turns in one ring: each slot says where the next
unroll of its lane lies, and which was the one before. The oldest unroll makes room for the newest, of whichever lane.

A slot is followed by the next one of its lane only if that begins where it ended. That is looked at, not assumed: after
a worker has died an unroll may be of other episodes than the one before it.

Where observations are stacks of frames, ``observation`` has rows of frames instead (``frames.py``).
Observations may be kept elsewhere (``on_host.py``): then ``observation``, ``last`` and those of an unroll are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.specs import FrameStack
from weft.core.types import Array, Tree, Unroll
from weft.replay.frames import begun, newest, rows_of, split


class Ring(NamedTuple):
    """``S`` slots, each for an unroll of ``T`` steps of ``B`` environments."""

    observation: Tree | None  # [S, T + 1 + F, B, ...]; of stacked frames [S, T + k + F (+ 1), B, *frame]
    action: Tree  # [S, T, B, ...]
    reward: Array  # [S, T, B] float32
    terminated: Array  # [S, T, B] bool
    truncated: Array  # [S, T, B] bool
    cut: Array  # [S, F, B] int32: the step that each final observation belongs to, or -1
    continues: jax.Array  # [S, B] bool: the next unroll of its lane begins where this one ended
    after: jax.Array  # [S] int32: the slot of that unroll
    earlier: Array  # [S] int32: the number of the unroll before, of the same lane; -1: there was none
    inserted: Array  # [] int32: unrolls so far
    newest: jax.Array  # [L] int32: the number of each lane's newest unroll; -1: it has none
    # [L, B, ...] what followed each lane's newest unroll; a copy, since reading its slot would forbid writing in place
    last: Tree | None
    ended: jax.Array  # [L, B] bool: an episode ended with its last step
    action_mask: Array | None = None  # [S, T, B, choices]
    valid: Array | None = None  # [S, T, B] bool
    begun: Array | None = None  # [S, T + 1, B] int32, of stacked frames: the row in which the row's episode began

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


def empty(unroll: Unroll, slots: int, lanes: int = 1, frames: FrameStack | None = None) -> Ring:
    """A ring for unrolls of ``lanes`` lanes like ``unroll`` (arrays or their shapes), with nothing in it."""
    length, envs = unroll.reward.shape
    finals = unroll.finals
    count = 0 if finals is None else finals.step.shape[0]

    def zeros(tree: Any, rows: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((slots, rows, *x.shape[1:]), x.dtype), tree)

    seen, rows = unroll.observation, length + 1 + count
    if frames is not None:
        seen, rows = jax.eval_shape(lambda x: _frame(x, frames), seen), rows_of(frames, length, count)
    return Ring(
        observation=zeros(seen, rows),
        action=zeros(unroll.action, length),
        reward=zeros(unroll.reward, length),
        terminated=zeros(unroll.terminated, length),
        truncated=zeros(unroll.truncated, length),
        cut=jnp.full((slots, count, envs), -1, jnp.int32),
        continues=jnp.zeros((slots, envs), jnp.bool_),
        after=jnp.zeros((slots,), jnp.int32),
        earlier=jnp.full((slots,), -1, jnp.int32),
        inserted=jnp.int32(0),
        newest=jnp.full((lanes,), -1, jnp.int32),
        last=jax.tree.map(lambda x: jnp.zeros((lanes, *x.shape), x.dtype), unroll.last_observation),
        ended=jnp.zeros((lanes, envs), jnp.bool_),
        action_mask=zeros(unroll.action_mask, length),
        valid=zeros(unroll.valid, length),
        begun=None if frames is None else jnp.zeros((slots, length + 1, envs), jnp.int32),
    )


def insert(
    ring: Ring,
    unroll: Unroll,
    same: Array | bool = True,
    lane: Array | int = 0,
    frames: FrameStack | None = None,
) -> Ring:
    """Write an unroll of a lane over the oldest one of all. In place, where the caller gives the ring away.

    ``same`` (``[B]``): False where it is known not to follow the lane's newest unroll.
    """
    slot, earlier = ring.inserted % ring.slots, ring.newest[lane]
    there = (earlier >= 0) & (earlier > ring.inserted - ring.slots)  # and not about to be written over
    before = jnp.where(there, earlier % ring.slots, ring.slots)  # beyond the end: dropped
    joined = same & _goes_on(ring, unroll, lane)
    rows = jax.tree.map(
        lambda steps, last, *final: _rows(steps, last, final, frames),
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
        "earlier": earlier,
        "action_mask": unroll.action_mask,
        "valid": valid,
    }
    if unroll.finals is not None:
        kept["cut"] = unroll.finals.step
    if frames is not None:
        kept["begun"] = begun(unroll.first, unroll.last_first, frames)

    def write(_: Array, places: dict[str, Tree]) -> dict[str, Tree]:
        places = {**places, "continues": places["continues"].at[before].set(joined, mode="drop")}
        written: dict[str, Tree] = jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, slot, 0),
            {name: places[name] for name in kept},
            kept,
        )
        return {**written, "after": places["after"].at[before].set(slot, mode="drop")}

    def twice(places: dict[str, Tree]) -> dict[str, Tree]:
        # The same: a loop of one turn is none to XLA.
        written: dict[str, Tree] = jax.lax.fori_loop(0, 2, write, places)
        return written

    def once(places: dict[str, Tree]) -> dict[str, Tree]:
        written: dict[str, Tree] = jax.lax.optimization_barrier(write(jnp.int32(0), places))
        return written

    # Apart from what reads: XLA would else write there as well, into what a batch is drawn from, and copy the whole
    # ring for that. On a CPU it takes barriers out too early; elsewhere each turn of a loop is a dozen kernels.
    places = {name: getattr(ring, name) for name in (*kept, "after")}
    return ring._replace(
        **jax.lax.platform_dependent(places, cpu=twice, default=once),
        inserted=ring.inserted + 1,
        newest=ring.newest.at[lane].set(ring.inserted),
        last=jax.tree.map(lambda all_, one: all_.at[lane].set(one), ring.last, unroll.last_observation),
        ended=ring.ended.at[lane].set(unroll.terminated[-1] | unroll.truncated[-1]),
    )


def _frame(observation: Tree, frames: FrameStack) -> Tree:
    return jax.tree.map(lambda x: newest(x, frames, 2), observation)


def _rows(steps: Array, last: Array, final: Sequence[Array], frames: FrameStack | None) -> jax.Array:
    """What is stored of the observations of an unroll, ``[T, B, ...]``, ``[B, ...]`` and ``[F, B, ...]``, in order."""
    if frames is None:
        return jnp.concatenate([steps, last[None], *final])
    whole = jnp.moveaxis(split(steps[0], frames, 1), 1, 0)
    rest = [newest(x, frames, 2) for x in (steps[1:], last[None], *final)]
    return jnp.concatenate([whole, *rest, *([jnp.zeros_like(whole[:1])] if frames.padding == "zeros" else [])])


def _goes_on(ring: Ring, unroll: Unroll, lane: Array | int) -> Array:
    """``[B]`` bool: whether an unroll's first observation is what followed the last step of its lane's newest one."""
    same = [ring.ended[lane] == unroll.first[0]]
    for kept, now in zip(jax.tree.leaves(ring.last), jax.tree.leaves(unroll.observation), strict=True):
        same.append((kept[lane] == now[0]).reshape((ring.envs, -1)).all(-1))
    return jnp.stack(same).all(0)
