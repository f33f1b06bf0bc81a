"""Losses and diagnostics, element by element.

All arrays and results have one shape, ``[...]``, usually ``[T, B]`` or ``[minibatch]``; the caller masks and averages
(``weft.ops.masked.mean``). Losses are minimised. Advantages, targets and old values are constants: gradients through
them are stopped here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from weft.core.errors import ConfigError
from weft.core.types import Array

_MAX_LOG_RATIO = 20.0  # beyond e^20 a larger ratio adds nothing, and its gradient would soon overflow to NaN


def policy_gradient(log_prob: Array, advantage: Array) -> jax.Array:
    """REINFORCE's loss, ``-log_prob * advantage``, ``[...]``."""
    return -jnp.asarray(log_prob) * jax.lax.stop_gradient(advantage)


def clipped_surrogate(log_ratio: Array, advantage: Array, clip: ArrayLike, dual_clip: float | None = None) -> jax.Array:
    """PPO's policy loss (Schulman et al., arXiv:1707.06347), ``[...]``.

    ``-min(ratio * advantage, clip(ratio, 1 - clip, 1 + clip) * advantage)`` where ``ratio`` is the exponential of
    ``log_ratio``: log pi(action) now minus log pi(action) when it was taken, clipped to [-20, 20]. With ``dual_clip``
    (above 1) the objective is never below ``dual_clip * advantage`` where the advantage is negative (Ye et al.,
    arXiv:1912.09729).
    """
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
    objective = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)
    if dual_clip is not None:
        objective = jnp.where(advantage < 0.0, jnp.maximum(objective, dual_clip * advantage), objective)
    return -objective


def value_loss(
    value: Array,
    target: Array,
    old_value: Array | None = None,
    clip: ArrayLike | None = None,
) -> jax.Array:
    """Half the squared error of ``value`` against ``target``, ``[...]``.

    With ``clip`` and ``old_value`` (the value when the step was taken), PPO's pessimistic form: the greater of this
    loss and that of a value moved at most ``clip`` away from the old one. Without ``clip``, ``old_value`` is not
    read.
    """
    target = jax.lax.stop_gradient(target)
    loss = 0.5 * jnp.square(value - target)
    if clip is None:
        return loss
    if old_value is None:
        raise ConfigError("value_loss: clip is given, so old_value is needed: the value when the step was taken")
    old_value = jax.lax.stop_gradient(old_value)
    clipped = old_value + jnp.clip(value - old_value, -jnp.asarray(clip), clip)
    return jnp.maximum(loss, 0.5 * jnp.square(clipped - target))


def quantile_regression(quantiles: Array, target: Array, huber: float | None = None) -> jax.Array:
    """QR-DQN's loss (Dabney et al., arXiv 1710.10044), ``[...]`` of ``[..., Q]`` quantiles and ``[..., M]`` targets.

    Quantile i of Q stands for the probability ``(i + 1/2) / Q``. Its error against each target counts with that
    probability where the target is above it, and with the rest where it is below; the mean over targets, the sum over
    quantiles. Errors count linearly; with ``huber`` those below it are squared, divided by twice of it.
    """
    quantiles, target = jnp.asarray(quantiles), jax.lax.stop_gradient(target)
    count = quantiles.shape[-1]
    probability = (jnp.arange(count, dtype=jnp.float32) + 0.5) / count
    error = target[..., None, :] - quantiles[..., :, None]  # [..., Q, M]
    size = jnp.abs(error)
    if huber is not None:
        size = jnp.where(size <= huber, 0.5 * jnp.square(error) / huber, size - 0.5 * huber)
    weight = jnp.abs(probability[:, None] - (error < 0))
    return (weight * size).mean(-1).sum(-1)


def approx_kl(log_ratio: Array) -> jax.Array:
    """An estimate of KL(old || new) from steps taken by the old policy, ``[...]``: ``(ratio - 1) - log_ratio``.

    It is never negative, is unbiased, and has low variance (the estimator k3 of Schulman, "Approximating KL
    divergence", 2020). ``log_ratio`` is clipped to [-20, 20], so that the mean stays finite even with a step that the
    new policy would hardly ever take.
    """
    log_ratio = jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return jnp.expm1(log_ratio) - log_ratio
