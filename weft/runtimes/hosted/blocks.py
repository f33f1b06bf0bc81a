"""A block: the memory of one unroll as environments and act fill it, and as it travels to learn.

It holds one step more than the unroll, since what follows the last step begins the next: an unroll, and what act saw
in it, are views of a block. Environments write into its rows, a channel's slot is laid out as one, and learn cuts it
up on its device, so that nothing is copied in between.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.specs import EnvSpec
from weft.core.types import Acted, Array, Finals, Timestep, Tree, Unroll
from weft.graph.fragment import Schema
from weft.graph.loops import as_schema, finals_schema, policy_view


class Block(NamedTuple):
    """``T`` steps of ``B`` environments, and what came after them."""

    steps: Timestep  # [T + 1, B, ...]; final observations are not kept
    action: Tree  # [T, B, ...]
    extras: dict[str, Tree]  # [T, B, ...]; empty where learn finds them by itself
    bootstrap: Array  # [T, B], or [T, B, A] of agents, as in an Unroll
    carry: Tree  # [B, ...] act's, before the first step
    finals: Finals | None = None  # [F, B, ...] as in an Unroll


def block_schema(spec: EnvSpec, length: int, rows: int, acted: Acted, *, extras: bool, finals: int = 0) -> Block:
    """The shapes of a block of ``rows`` environments; ``acted`` is of ``[B, ...]`` shapes, with any B.

    ``finals`` is how many final observations there is room for, of each environment.
    """

    def over(leading: tuple[int, ...], schema: Schema) -> Schema:
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct((*leading, *s.shape[1:]), s.dtype), schema)

    steps = timestep_buffers(spec, (length + 1, rows))._replace(final_observation=None)
    bootstrap: Any = jax.ShapeDtypeStruct((length, rows, *spec.reward_shape), jnp.float32)
    return Block(
        steps=as_schema(steps),
        action=over((length, rows), acted.action),
        extras=over((length, rows), acted.extras) if extras else {},
        bootstrap=bootstrap,
        carry=over((rows,), acted.carry),
        finals=finals_schema(as_schema(timestep_buffers(spec, (rows,)).observation), finals),
    )


def allocate_block(schema: Block) -> Block:
    """Zeroed NumPy arrays for a block."""
    zeros: Block = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), schema)
    return zeros


def seen(block: Block) -> Timestep:
    """What act saw at each step, ``[T, B, ...]``."""
    before: Timestep = jax.tree.map(lambda x: x[:-1], policy_view(block.steps))
    return before


def as_message(message: Tree) -> Tree:
    """What a fragment is given of a message: the unroll that a block holds; anything else as it is."""
    return as_unroll(message) if isinstance(message, Block) else message


def as_unroll(block: Block) -> Unroll:
    """The unroll that a block holds. Of NumPy arrays: views, not copies."""
    steps = block.steps
    ended = steps.terminated | steps.truncated
    before, after = jax.tree.map(lambda x: x[:-1], steps), jax.tree.map(lambda x: x[1:], steps)
    return Unroll(
        observation=before.observation,
        first=ended[:-1],
        action=block.action,
        extras=block.extras,
        reward=after.reward,
        terminated=after.terminated,
        truncated=after.truncated,
        bootstrap=block.bootstrap,
        carry=block.carry,
        last_observation=jax.tree.map(lambda x: x[-1], steps.observation),
        last_first=ended[-1],
        action_mask=before.action_mask,
        valid=after.valid,
        finals=block.finals,
    )


def unmarked(message: Tree) -> Tree:
    """A block, an unroll, or a tree in a block's form, without its marks of valid records."""
    if isinstance(message, Block):
        return message._replace(steps=message.steps._replace(valid=None))
    return message._replace(valid=None)


def all_valid(message: Tree) -> bool:
    """Whether a block or an unroll in host memory has marks, and none of them says that a record is not valid."""
    marks = message.steps.valid if isinstance(message, Block) else message.valid
    return marks is not None and bool(np.all(marks))


def fill(block: Block, unroll: Unroll) -> None:
    """Write an unroll into a block's NumPy arrays. What came before its first step is known only by ``first``."""
    steps = block.steps
    for kept, now, last in (
        (steps.observation, unroll.observation, unroll.last_observation),
        (steps.reward[1:], unroll.reward, None),
        (steps.terminated[1:], unroll.terminated, None),
        (steps.truncated[1:], unroll.truncated, None),
        (block.action, unroll.action, None),
        (block.extras, unroll.extras, None),
        (block.bootstrap, unroll.bootstrap, None),
        (block.carry, unroll.carry, None),
        (block.finals, unroll.finals, None),
    ):
        for place, value in zip(jax.tree.leaves(kept), jax.tree.leaves(now), strict=True):
            np.copyto(place[:-1] if last is not None else place, np.asarray(value))
        if last is not None:
            for place, value in zip(jax.tree.leaves(kept), jax.tree.leaves(last), strict=True):
                np.copyto(place[-1], np.asarray(value))
    for place, value in ((steps.reward, 0.0), (steps.terminated, False), (steps.truncated, unroll.first[0])):
        np.asarray(place)[0] = np.asarray(value)
    if steps.action_mask is not None and unroll.action_mask is not None:
        np.copyto(np.asarray(steps.action_mask)[:-1], np.asarray(unroll.action_mask))
