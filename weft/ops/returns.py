"""Returns: discounted and n-step (Sutton and Barto, 2018, chapter 7).

The arguments mean the same as in ``weft.ops.gae``: ``[T, B]`` arrays, time first. ``bootstrap`` is the value of what
would have followed, used where truncated and at the last step. Nothing follows a termination.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from weft.core.errors import ConfigError
from weft.core.types import Array
from weft.ops.recursion import backward, following_value, trace


def discounted_return(
    reward: Array,
    bootstrap: Array,
    terminated: Array,
    truncated: Array,
    discount: ArrayLike,
    valid: Array | None = None,
) -> jax.Array:
    """The discounted sum of rewards to the episode's end, ``[T, B]``.

    Where a truncation or the end of the unroll comes first, ``bootstrap`` stands for the rest. All arrays are
    ``[T, B]``; ``discount`` is a scalar or broadcasts to it. Records that are not ``valid`` have return 0.
    """
    reward = jnp.asarray(reward)
    nothing = jnp.zeros_like(reward)
    rest = discount * following_value(nothing, bootstrap, terminated, truncated)
    addend = reward + rest
    if valid is not None:
        addend = jnp.where(valid, addend, 0.0)
    return backward(addend, trace(discount, terminated, truncated, valid))


def n_step_return(
    reward: Array,
    value: Array,
    bootstrap: Array,
    terminated: Array,
    truncated: Array,
    discount: ArrayLike,
    n: int,
    valid: Array | None = None,
) -> jax.Array:
    """``n`` rewards and then the value, ``[T, B]``; fewer rewards where the episode or the unroll ends earlier.

    ``n`` is a static integer of at least 1; the cost grows with ``min(n, T)``. With ``n >= T`` it is the discounted
    return. Arrays are ``[T, B]``; records that are not ``valid`` have their own ``value``.
    """
    if n < 1:
        raise ConfigError(f"n_step_return: n = {n}, but it counts rewards: give at least 1")
    reward = jnp.asarray(reward)
    steps = reward.shape[0]
    following = following_value(value, bootstrap, terminated, truncated)
    ends = jnp.logical_or(terminated, truncated).at[-1].set(True)
    result = reward + discount * following
    for _ in range(min(n, steps) - 1):
        # put this record's reward in front of the next record's shorter return, unless the episode or unroll ends here
        later = jnp.concatenate([result[1:], result[-1:]])
        result = reward + discount * jnp.where(ends, following, later)
    return result if valid is None else jnp.where(valid, result, value)
