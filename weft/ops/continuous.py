"""Distributions over continuous actions: a diagonal Gaussian, and one squashed into [-1, 1].

``params`` are ``[..., 2 * dim]``: the means, then the logs of the deviations (``dim`` is the product of ``shape``). A
deviation that does not depend on the observation belongs to the network's head, which appends it to the means.
Log-deviations are clipped to [-10, 2]; outside, their gradient is 0. The interface is
``weft.ops.distributions.Distribution``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import Shape
from weft.core.types import Array

LOG_STD_RANGE = (-10.0, 2.0)
_LOG_TWO_PI = math.log(2.0 * math.pi)
_EDGE = 1.0 - 1e-6  # the largest squashed action: float32 tells it from 1, so atanh is finite

# log(2 cosh u) is the sum of weight * E|u + scale * z|, z standard normal, to 4e-5 for every u: its second derivative
# is twice a logistic density, nearly a mixture of three Gaussians. We fitted these for the smallest maximal error.
_WEIGHTS = (0.323206, 0.566131, 0.110663)
_SCALES = (0.576314, 0.920549, 1.458109)


@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian over float32 actions of ``shape``. It is unbounded: ``EnvSpec.to_native`` clips."""

    shape: Shape

    @property
    def dim(self) -> int:
        """The number of numbers in an action."""
        return math.prod(self.shape)

    @property
    def num_params(self) -> int:
        """A mean and a log-deviation for each number."""
        return 2 * self.dim

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """An action, ``[..., *shape]``; differentiable in ``params``."""
        mean, log_std = self.moments(params)
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return self.shaped(mean + jnp.exp(log_std) * noise)

    def mode(self, params: jax.Array) -> jax.Array:
        """The mean, ``[..., *shape]``."""
        return self.shaped(self.moments(params)[0])

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """The log-density, ``[...]``, for ``action`` ``[..., *shape]``."""
        mean, log_std = self.moments(params)
        scaled = (self.flat(action) - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * jnp.square(scaled) + log_std + 0.5 * _LOG_TWO_PI, axis=-1)

    def entropy(self, params: jax.Array) -> jax.Array:
        """The differential entropy in nats, ``[...]``; it may be negative."""
        _, log_std = self.moments(params)
        return jnp.sum(log_std + 0.5 * (1.0 + _LOG_TWO_PI), axis=-1)

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """Raises ``ConfigError``: a Box has no choices."""
        raise ConfigError(
            f"an action mask of shape {tuple(action_mask.shape)} came with continuous actions of shape {self.shape}, "
            "which have no choices to mask: drop the mask, or make the action space discrete"
        )

    def moments(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``(mean, log_std)``, each ``[..., dim]``, the second clipped to its range."""
        params = params.astype(jnp.promote_types(params.dtype, jnp.float32))
        mean, log_std = jnp.split(params, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def shaped(self, flat: jax.Array) -> jax.Array:
        """``[..., dim]`` to ``[..., *shape]``."""
        return flat.reshape(flat.shape[:-1] + self.shape)

    def flat(self, action: Array) -> jax.Array:
        """``[..., *shape]`` to ``[..., dim]``."""
        return jnp.asarray(action).reshape((*action.shape[: action.ndim - len(self.shape)], self.dim))


@dataclass(frozen=True)
class SquashedGaussian:
    """A diagonal Gaussian through tanh, over float32 actions of ``shape`` in [-1, 1] (SAC, arXiv:1801.01290).

    It has the ``params`` of ``Gaussian``, before the squashing. ``sample`` and ``log_prob`` both clip actions to 1e-6
    inside the bounds, so that act and learn compute the same density for a sample.
    """

    shape: Shape

    @property
    def num_params(self) -> int:
        """A mean and a log-deviation for each number."""
        return self._inner.num_params

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """An action in [-1, 1], ``[..., *shape]``; differentiable in ``params``."""
        return jnp.clip(jnp.tanh(self._inner.sample(params, key)), -_EDGE, _EDGE)

    def sample_and_log_prob(self, params: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """As ``sample``, with the action's log-density, ``[...]``; both differentiable in ``params``.

        The density comes from the number before the squashing, so that it has a gradient up to the bounds.
        """
        before = self._inner.sample(params, key)
        action = jnp.clip(jnp.tanh(before), -_EDGE, _EDGE)
        return action, self._inner.log_prob(params, before) - jnp.sum(self._inner.flat(_log_slope(before)), axis=-1)

    def mode(self, params: jax.Array) -> jax.Array:
        """The squashed mean, ``[..., *shape]``. It is the median: the density itself may peak at the bounds."""
        return jnp.clip(jnp.tanh(self._inner.mode(params)), -_EDGE, _EDGE)

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """The log-density, ``[...]``, for ``action`` ``[..., *shape]``."""
        before = jnp.arctanh(jnp.clip(action, -_EDGE, _EDGE))
        return self._inner.log_prob(params, before) - jnp.sum(self._inner.flat(_log_slope(before)), axis=-1)

    def entropy(self, params: jax.Array) -> jax.Array:
        """The differential entropy in nats, ``[...]``, without sampling, to 1e-4 for each number of the action.

        It is the Gaussian's entropy plus the mean of log(1 - tanh(u)^2) = 2 log 2 - 2 log(2 cosh u). With log(2 cosh u)
        as a sum of E|u + scale * z|, its mean over Gaussian u has a closed form: the mean of a folded normal.
        """
        mean, log_std = self._inner.moments(params)
        log_two_cosh = jnp.zeros_like(mean)
        for weight, scale in zip(_WEIGHTS, _SCALES, strict=True):
            wide = jnp.sqrt(jnp.exp(2.0 * log_std) + scale**2)
            ratio = mean / wide
            folded = math.sqrt(2.0 / math.pi) * wide * jnp.exp(-0.5 * jnp.square(ratio))
            folded += mean * jax.lax.erf(ratio * math.sqrt(0.5))
            log_two_cosh += weight * folded
        return self._inner.entropy(params) + jnp.sum(2.0 * (math.log(2.0) - log_two_cosh), axis=-1)

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """Raises ``ConfigError``: a Box has no choices."""
        return self._inner.mask(params, action_mask)

    @property
    def _inner(self) -> Gaussian:
        return Gaussian(self.shape)


def _log_slope(before: jax.Array) -> jax.Array:
    """log(1 - tanh(u)^2), written so that no digits cancel where tanh is near its bounds."""
    return 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))
