"""V-trace: off-policy corrected targets and advantages (Espeholt et al., IMPALA, arXiv:1802.01561)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from weft.core.types import Array
from weft.ops.recursion import backward, following_value, trace


def vtrace(
    reward: Array,
    value: Array,
    bootstrap: Array,
    terminated: Array,
    truncated: Array,
    log_ratio: Array,
    discount: ArrayLike,
    trace_decay: ArrayLike = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    valid: Array | None = None,
    weigh: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """Targets for the value and advantages for the policy: ``(target, advantage)``, both ``[T, B]``.

    ``log_ratio`` (``[T, B]``) is log pi(action) under the learner's policy minus that under the policy that acted.
    With ``rho = min(clip_rho, ratio)``, ``c = trace_decay * min(clip_c, ratio)`` and ``next`` as in
    ``weft.ops.gae``::

        target[t] - value[t] = rho[t] * (reward[t] + discount * next[t] - value[t])
                               + discount * c[t] * (target[t + 1] - value[t + 1])          only within an episode
        advantage[t]         = rho[t] * (reward[t] + discount * q[t] - value[t])

    ``q[t]`` is ``next[t]`` where the episode or the unroll ends, else ``trace_decay * target[t + 1] + (1 -
    trace_decay) * value[t + 1]``. With ``trace_decay`` 1, as in the paper, that is ``target[t + 1]``. This choice makes
    the advantage equal to GAE's when on policy (``log_ratio`` 0, both clips at least 1), for every ``trace_decay``.

    With ``weigh`` False the advantage lacks its factor ``rho[t]``, for a loss that weighs each step by the ratio
    itself, as PPO's does. Later steps are still weighted.

    The other arguments are those of ``gae``: ``[T, B]`` arrays; ``discount`` and ``trace_decay`` are scalars, or
    broadcast to ``[T, B]``. Records that are not ``valid`` have target ``value`` and advantage 0, and add nothing to
    earlier ones. This does not stop gradients: the losses of ``weft.ops`` do.
    """
    ratio = jnp.exp(log_ratio)
    rho, c = jnp.minimum(clip_rho, ratio), jnp.minimum(clip_c, ratio)
    value = jnp.asarray(value)
    delta = jnp.asarray(reward) + discount * following_value(value, bootstrap, terminated, truncated) - value
    decay = trace(jnp.multiply(discount, trace_decay), terminated, truncated, valid)
    if valid is not None:
        rho, c, delta = (jnp.where(valid, x, 0.0) for x in (rho, c, delta))
    correction = backward(rho * delta, decay * c)
    later = jnp.concatenate([correction[1:], jnp.zeros_like(correction[:1])])
    advantage = delta + decay * later
    return value + correction, rho * advantage if weigh else advantage
