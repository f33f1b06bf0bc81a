"""Statistics over the valid elements of an array.

``valid`` is a bool array whose axes are the first ones of ``x``: ``[T, B]`` for an ``x`` of ``[T, B]`` or ``[T, B,
...]``. None means that every element is valid, at no cost. Invalid elements are never used, even if they are NaN.
Where no element is valid, every result is 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array


def mean(x: Array, valid: Array | None = None) -> jax.Array:
    """The mean of the valid elements of ``x``, ``[]``."""
    if valid is None:
        return jnp.mean(x)
    where = _like(valid, x)
    return jnp.sum(jnp.where(where, x, 0)) / jnp.maximum(jnp.sum(where), 1)


def var(x: Array, valid: Array | None = None) -> jax.Array:
    """The variance of the valid elements of ``x`` around their mean (divided by their number), ``[]``."""
    if valid is None:
        return jnp.var(x)
    return mean(jnp.square(x - mean(x, valid)), valid)


def std(x: Array, valid: Array | None = None) -> jax.Array:
    """The square root of ``var``, ``[]``."""
    return jnp.sqrt(var(x, valid))


def normalise(x: Array, valid: Array | None = None, eps: float = 1e-8) -> jax.Array:
    """``x`` shifted and scaled so that its valid elements have mean 0 and deviation 1; the others are 0.

    The result has the shape of ``x``. ``eps`` is added to the deviation.
    """
    scaled = jnp.subtract(x, mean(x, valid)) / (std(x, valid) + eps)
    return scaled if valid is None else jnp.where(_like(valid, x), scaled, 0)


def _like(valid: Array, x: Array) -> jax.Array:
    """``valid`` with the shape of ``x``."""
    return jnp.broadcast_to(valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim)), x.shape)
