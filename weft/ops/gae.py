"""Generalised advantage estimation (Schulman et al., arXiv:1506.02438)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from weft.core.types import Array
from weft.ops.recursion import backward, following_value, trace


def gae(
    reward: Array,
    value: Array,
    bootstrap: Array,
    terminated: Array,
    truncated: Array,
    discount: ArrayLike,
    trace_decay: ArrayLike,
    valid: Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Advantages, and the targets for the value: ``(advantage, target)``, both ``[T, B]``.

    With ``delta[t] = reward[t] + discount * next[t] - value[t]``, where ``next`` is 0 after a termination,
    ``bootstrap[t]`` after a truncation and at the last step, and ``value[t + 1]`` elsewhere::

        advantage[t] = delta[t] + discount * trace_decay * advantage[t + 1]     the second term only within an episode
        target[t]    = advantage[t] + value[t]

    ``reward``, ``value``, ``bootstrap``, ``terminated``, ``truncated`` (and ``valid``) are ``[T, B]``; ``discount``
    (gamma) and ``trace_decay`` (lambda) are scalars, or broadcast to ``[T, B]``. Records that are not ``valid`` have
    advantage 0 and target ``value``, and add nothing to earlier ones. This does not stop gradients: the losses of
    ``weft.ops`` do.
    """
    value = jnp.asarray(value)
    delta = jnp.asarray(reward) + discount * following_value(value, bootstrap, terminated, truncated) - value
    if valid is not None:
        delta = jnp.where(valid, delta, 0.0)
    advantage = backward(delta, trace(jnp.multiply(discount, trace_decay), terminated, truncated, valid))
    return advantage, advantage + value
