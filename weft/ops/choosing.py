"""The numbers that belong to what was chosen, out of those of all choices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array

FEW = 18
"""Choices at most that are compared with what was chosen, one by one: Atari has no more."""


def of_chosen(values: Array, choice: Array, axis: int = -1) -> jax.Array:
    """``values`` ``[..., n, ...]`` at ``choice`` along ``axis``, which falls away; what is no choice of n gives NaN.

    ``choice`` has the shape of the result, with 1 where it is the same for all.

    On a CPU it is a gather, which with its gradient is as fast as a comparison with every choice or up to 15% faster
    (512 and 4096 rows, 2 to 18 choices). On a GPU a gather and its gradient are kernels of their own, and comparisons
    become part of others.
    """
    values = jnp.asarray(values)
    count = values.shape[axis]
    if jax.default_backend() == "cpu" or count > FEW:
        choice = jnp.where(choice < 0, count, choice)  # which a gather would count from the end
        return jnp.take_along_axis(values, jnp.expand_dims(choice, axis), axis=axis).squeeze(axis)
    found = jnp.full((), jnp.nan, values.dtype)
    for k in range(count):
        found = jnp.where(choice == k, jax.lax.index_in_dim(values, k, axis, keepdims=False), found)
    return found
