"""The steps that all returns share: the value that follows a record, and the sum that runs backwards in time.

They work on ``[T, B]`` arrays, time first. A record ends its episode where it is terminated or truncated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from weft.core.types import Array


def following_value(value: Array, bootstrap: Array, terminated: Array, truncated: Array) -> jax.Array:
    """The value of what follows each record, ``[T, B]``.

    It is zero where ``terminated``, ``bootstrap`` where ``truncated`` and at the last step, and the next ``value``
    elsewhere. Only that number is used in each place, so the others may be NaN. All arguments are ``[T, B]``; a record
    that is both terminated and truncated counts as terminated.
    """
    shifted = jnp.concatenate([value[1:], bootstrap[-1:]])
    return jnp.where(terminated, 0.0, jnp.where(truncated, bootstrap, shifted))


def revalued(bootstrap: Array, truncated: Array, after: Array) -> jax.Array:
    """``bootstrap`` with the learner's value of what follows the last step, ``[T, B]``.

    ``after`` (``[B]``) is the learner's own value of ``last_observation``. It replaces the last row, except for
    environments truncated there: their ``last_observation`` begins another episode, so act's value of the final
    observation stays.
    """
    bootstrap = jnp.asarray(bootstrap)
    return bootstrap.at[-1].set(jnp.where(truncated[-1], bootstrap[-1], after))


def trace(decay: ArrayLike, terminated: Array, truncated: Array, valid: Array | None = None) -> jax.Array:
    """``decay`` where the episode continues, and 0 where it ends or the record is not ``valid``: ``[T, B]``."""
    cut = terminated | truncated
    if valid is not None:
        cut = cut | ~valid
    return jnp.where(cut, 0.0, decay)


def backward(addend: jax.Array, factor: jax.Array) -> jax.Array:
    """``x[t] = addend[t] + factor[t] * x[t + 1]`` with nothing after the last: ``[T, B]`` from two ``[T, B]``.

    On a CPU it is a scan of one multiply and one add, not unrolled. On two cores (best of 7) at [32, 64], [128, 8],
    [128, 64], [32, 2048] and [16, 65536], unrolling by 2, 4 or 8 gained at most 6% and took up to five times as long;
    an associative scan gained 10% at the first size and took 1.6 to 8 times as long at the others; unrolling all T
    steps gained a fifth at the first size and a third at the last, and took twice as long at [32, 2048].

    On a GPU each step of a scan is a few kernels; an associative scan of 32 steps is two, of 1,024 nine.
    """
    if jax.default_backend() != "cpu":
        return _in_few_kernels(addend, factor)

    def body(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now = step[0] + step[1] * later
        return now, now

    return jax.lax.scan(body, jnp.zeros_like(addend[0]), (addend, factor), reverse=True)[1]


def _in_few_kernels(addend: jax.Array, factor: jax.Array) -> jax.Array:
    """The same, in a number of passes that grows with the logarithm of T."""

    def joined(later: tuple[jax.Array, ...], earlier: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return earlier[0] + earlier[1] * later[0], earlier[1] * later[1]

    both = addend, jnp.broadcast_to(factor, addend.shape)
    found: jax.Array = jax.lax.associative_scan(joined, both, reverse=True)[0]
    return found
