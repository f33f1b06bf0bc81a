"""The two steps that every return shares: the value that follows a record, and the sum that runs backwards in time.

Both work on ``[T, B]`` arrays, time first. A record ends its episode where it is terminated or truncated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def following_value(value: jax.Array, bootstrap: jax.Array, terminated: jax.Array, truncated: jax.Array) -> jax.Array:
    """The value of what follows each record, ``[T, B]``.

    Zero where ``terminated``; ``bootstrap`` where ``truncated`` and at the last step; elsewhere the next ``value``.
    What the other array holds in such a place is never read, not even a NaN. All arguments are ``[T, B]``; a record
    that is both terminated and truncated counts as terminated.
    """
    shifted = jnp.concatenate([value[1:], bootstrap[-1:]])
    return jnp.where(terminated, 0.0, jnp.where(truncated, bootstrap, shifted))


def trace(decay: ArrayLike, terminated: jax.Array, truncated: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """``decay`` where the episode goes on, and 0 where it ends or the record is not ``valid``: ``[T, B]``."""
    cut = terminated | truncated
    if valid is not None:
        cut = cut | ~valid
    return jnp.where(cut, 0.0, decay)


def backward(addend: jax.Array, factor: jax.Array) -> jax.Array:
    """``x[t] = addend[t] + factor[t] * x[t + 1]`` with nothing after the last: ``[T, B]`` from two ``[T, B]``.

    A scan of one multiply and one add, not unrolled. Measured on two CPU cores at [32, 64], [128, 8], [128, 64],
    [32, 2048] and [16, 65536]: the associative scan was slower at all but the first (there by less), and unrolling by 2
    to 16 gained at most a tenth at small sizes while it cost two to twenty times at large ones. Only unrolling all T
    steps was faster somewhere (by a third at [16, 65536]), and it takes seconds to compile at T = 128.
    """

    def body(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now = step[0] + step[1] * later
        return now, now

    return jax.lax.scan(body, jnp.zeros_like(addend[0]), (addend, factor), reverse=True)[1]
