"""Distributions over discrete actions: one choice, several independent choices, independent bits.

They compute in at least float32, whatever the network's precision. The interface is
``weft.ops.distributions.Distribution``.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Array
from weft.ops.choosing import of_chosen

# The logit of a choice that cannot occur: its probability is exactly 0, but sums of many such logits stay finite.
_NEVER = -1e9


@dataclass(frozen=True)
class Categorical:
    """One of ``n`` choices; ``params`` are logits, ``[..., n]``; an action is int32 ``[...]``, a mask ``[..., n]``."""

    n: int

    @property
    def num_params(self) -> int:
        """One logit for each choice."""
        return self.n

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """A choice, int32 ``[...]``, by the Gumbel-max trick."""
        return _draw(_precise(params), key)

    def mode(self, params: jax.Array) -> jax.Array:
        """The most likely choice, int32 ``[...]``; the first of equals."""
        return jnp.argmax(params, axis=-1).astype(jnp.int32)

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """``[...]`` for ``action`` ``[...]``."""
        return _pick(_precise(params), action)

    def entropy(self, params: jax.Array) -> jax.Array:
        """In nats, ``[...]``."""
        return _entropy(_precise(params))

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """Logits ``[..., n]`` in which disallowed choices have probability 0; a mask that allows nothing is ignored."""
        return _allow(_precise(params), action_mask)


@dataclass(frozen=True)
class MultiCategorical:
    """Independent choices, the i-th of ``nvec[i]``; ``params`` are their logits side by side, ``[..., sum(nvec)]``.

    An action is int32 ``[..., len(nvec)]``; a mask has the layout of the logits.
    """

    nvec: tuple[int, ...]

    @property
    def num_params(self) -> int:
        """One logit for each choice of each dimension."""
        return sum(self.nvec)

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """Choices, int32 ``[..., len(nvec)]``, by the Gumbel-max trick."""
        return _draw(self._table(params), key)

    def mode(self, params: jax.Array) -> jax.Array:
        """The most likely choices, int32 ``[..., len(nvec)]``."""
        return jnp.argmax(self._table(params), axis=-1).astype(jnp.int32)

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """``[...]`` for ``action`` ``[..., len(nvec)]``."""
        return jnp.sum(_pick(self._table(params), action), axis=-1)

    def entropy(self, params: jax.Array) -> jax.Array:
        """In nats, ``[...]``."""
        return jnp.sum(_entropy(self._table(params)), axis=-1)

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """Logits ``[..., sum(nvec)]`` in which disallowed choices have probability 0; see ``Categorical.mask``."""
        params = _precise(params)
        parts = [_allow(p, m) for p, m in zip(self._split(params), self._split(action_mask), strict=True)]
        return jnp.concatenate(parts, axis=-1)

    def _split(self, flat: Array) -> list[jax.Array]:
        """``[..., sum(nvec)]`` to one ``[..., nvec[i]]`` for each dimension."""
        return jnp.split(flat, np.cumsum(self.nvec)[:-1].tolist(), axis=-1)

    def _table(self, params: jax.Array) -> jax.Array:
        """The logits as ``[..., len(nvec), max(nvec)]``, padded with choices that cannot occur."""
        params = _precise(params)
        widest = max(self.nvec)
        if min(self.nvec) == widest:
            return params.reshape((*params.shape[:-1], len(self.nvec), widest))
        lead = [(0, 0)] * (params.ndim - 1)
        rows = [
            jnp.pad(part, [*lead, (0, widest - part.shape[-1])], constant_values=_NEVER) for part in self._split(params)
        ]
        return jnp.stack(rows, axis=-2)


@dataclass(frozen=True)
class Bernoulli:
    """``n`` independent bits; ``params`` are the logits of each being 1, ``[..., n]``; an action is int8 ``[..., n]``.

    A mask has two entries for each bit, ``[..., 2 * n]``: whether 0 is allowed, and whether 1 is.
    """

    n: int

    @property
    def num_params(self) -> int:
        """One logit for each bit."""
        return self.n

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """Bits, int8 ``[..., n]``: a logit plus logistic noise is above 0 with the bit's probability."""
        params = _precise(params)
        return (params + jax.random.logistic(key, params.shape, params.dtype) > 0.0).astype(jnp.int8)

    def mode(self, params: jax.Array) -> jax.Array:
        """The most likely bits, int8 ``[..., n]``."""
        return (params > 0.0).astype(jnp.int8)

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """``[...]`` for ``action`` ``[..., n]``."""
        params = _precise(params)
        return jnp.sum(jax.nn.log_sigmoid(jnp.where(action != 0, params, -params)), axis=-1)

    def entropy(self, params: jax.Array) -> jax.Array:
        """In nats, ``[...]``."""
        params = _precise(params)
        one, zero = jax.nn.log_sigmoid(params), jax.nn.log_sigmoid(-params)
        return -jnp.sum(jnp.exp(one) * one + jnp.exp(zero) * zero, axis=-1)

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """Logits ``[..., n]`` in which a bit with one allowed value takes it; a bit with none allowed stays free."""
        pairs = action_mask.reshape((*action_mask.shape[:-1], self.n, 2))
        zero, one = pairs[..., 0], pairs[..., 1]
        forced = jnp.where(one, -_NEVER, _NEVER)
        return jnp.where(zero == one, _precise(params), forced)


def _precise(params: jax.Array) -> jax.Array:
    return params.astype(jnp.promote_types(params.dtype, jnp.float32))


def _draw(logits: jax.Array, key: jax.Array) -> jax.Array:
    """A choice along the last axis, int32."""
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)


def _pick(logits: jax.Array, action: Array) -> jax.Array:
    """The log-probability of ``action`` along the last axis."""
    return of_chosen(jax.nn.log_softmax(logits), action)


def _entropy(logits: jax.Array) -> jax.Array:
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _allow(logits: jax.Array, allowed: Array) -> jax.Array:
    any_allowed = jnp.any(allowed, axis=-1, keepdims=True)
    return jnp.where(allowed | ~any_allowed, logits, _NEVER)
