"""Frames of stacked observations, each stored once: how a stack is taken apart, and which frames make one again.

    row of an unroll      0 … 0   1   2   …   T  |  final observations  |
    row in its slot       0 … k-1 k   k+1 …  T+k-1 | T+k … T+k+F-1      | zeros, where they stand before an episode

The first observation of an unroll is stored whole, k frames; of every other one its newest frame. The frames before
that are those of the rows before it, back to where its episode began: before it stands the padding that the environment
says. A final observation follows the step that was cut.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.specs import FrameStack
from weft.core.types import Array


def rows_of(frames: FrameStack, length: int, finals: int) -> int:
    """Frames in a slot for unrolls of ``length`` steps."""
    return frames.count + length + finals + (frames.padding == "zeros")


def split(x: Any, frames: FrameStack, leading: int) -> Any:
    """Observations after so many ``leading`` axes as their frames, oldest first: ``[..., k, *frame]``; also NumPy's."""
    shape, k = x.shape, frames.count
    if frames.axis == 0:
        return x.reshape((*shape[:leading], k, shape[leading] // k, *shape[leading + 1 :]))
    parts = x.reshape((*shape[:-1], k, shape[-1] // k))
    return (jnp if isinstance(x, jax.Array) else np).moveaxis(parts, -2, leading)


def newest(x: Any, frames: FrameStack, leading: int) -> Any:
    """The newest frame of each observation after so many ``leading`` axes: ``[..., *frame]``; also NumPy's: a view."""
    size = x.shape[leading if frames.axis == 0 else -1] // frames.count
    return x[(slice(None),) * leading + (slice(-size, None),)] if frames.axis == 0 else x[..., -size:]


def joined(parts: Any, frames: FrameStack, leading: int) -> Any:
    """What ``split`` takes apart."""
    shape = parts.shape
    if frames.axis == 0:
        return parts.reshape((*shape[:leading], shape[leading] * shape[leading + 1], *shape[leading + 2 :]))
    moved = (jnp if isinstance(parts, jax.Array) else np).moveaxis(parts, leading, -2)
    return moved.reshape((*moved.shape[:-2], moved.shape[-2] * moved.shape[-1]))


def begun(first: Array, last_first: Array, frames: FrameStack) -> jax.Array:
    """``[T + 1, B]`` int32: the row in which the episode of each row began; below 0 where that was before the unroll.

    Before the first row as many frames are stored as any stack in it has.
    """
    begins = jnp.concatenate([jnp.zeros_like(first[:1]), first[1:], last_first[None]])
    row = jnp.arange(len(begins), dtype=jnp.int32)[:, None]
    return jax.lax.cummax(jnp.where(begins, row, 1 - frames.count))


def frames_in_slot(frames: FrameStack, length: int, row: Array, cut: Array | None, began: Array) -> jax.Array:
    """``[..., k]``: the rows in a slot of the frames, oldest first, of the observation in ``row`` (``[...]``).

    ``cut``: of a final observation the step before it, elsewhere -1; None where there are none. ``began``: where the
    episode of ``row`` began, or of the step that was cut.
    """
    k = frames.count
    back = jnp.arange(k - 1, -1, -1)
    is_final = jnp.zeros(row.shape, jnp.bool_) if cut is None else row > length
    newest_but = row if cut is None else jnp.where(is_final, cut + 1, row)
    step = newest_but[..., None] - back
    # In a slot all rows of final observations follow those of the unroll, and after them stand the zeros.
    zeros = -1 if frames.padding == "zeros" else began[..., None] + k - 1
    found = jnp.where(step >= began[..., None], step + k - 1, zeros)
    return jnp.where(is_final[..., None] & (back == 0), row[..., None] + k - 1, found)
