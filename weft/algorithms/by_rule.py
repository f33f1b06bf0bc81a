"""Policies that follow a rule and learn nothing: at random, or by a function of yours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, MultiBinary, MultiDiscrete, Space
from weft.core.types import Acted, Array, Timestep, Tree
from weft.graph.frozen import NotLearning


@dataclass(frozen=True)
class Random(NotLearning):
    """Every allowed action alike; an unbounded Box by a normal distribution."""

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """One drawn at random."""
        return Acted(drawn(self.spec.environment.action, timestep.action_mask, key), carry)


@dataclass(frozen=True)
class Scripted(NotLearning):
    """``rule(observation, key) -> action`` for one agent, in JAX."""

    rule: Callable[[Tree, jax.Array], Array] | None = None

    def check(self) -> None:
        """Refuse a policy without a rule."""
        if not callable(self.rule):
            raise ConfigError(f"Scripted: rule is {self.rule!r}, expected a function rule(observation, key) -> action")
        super().check()

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """What the rule says."""
        assert self.rule is not None
        space = self.spec.environment.action
        return Acted(jnp.asarray(self.rule(timestep.observation, key), space.dtype).reshape(space.shape), carry)


def drawn(space: Space, mask: Array | None, key: jax.Array) -> jax.Array:
    """An action of ``space`` at random: evenly among those that ``mask`` allows."""
    match space:
        case Discrete(n=n, dtype=dtype):
            return _one_of(n, mask, key).astype(dtype)
        case MultiDiscrete(nvec=nvec, dtype=dtype):
            keys, starts = jax.random.split(key, len(nvec)), [sum(nvec[:i]) for i in range(len(nvec))]
            masks = [None if mask is None else mask[s : s + n] for s, n in zip(starts, nvec, strict=True)]
            return jnp.stack([_one_of(n, m, k) for n, m, k in zip(nvec, masks, keys, strict=True)]).astype(dtype)
        case MultiBinary(n=n, dtype=dtype):
            return jax.random.bernoulli(key, 0.5, (n,)).astype(dtype)
        case Box(shape=shape):
            bounded = jnp.asarray(space.bounded)
            even = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)  # policies see bounds of [-1, 1]
            return jnp.where(bounded, even, jax.random.normal(key, shape))
    raise ConfigError(f"not an action space: {space!r}")


def _one_of(n: int, mask: Array | None, key: jax.Array) -> jax.Array:
    if mask is None:
        return jax.random.randint(key, (), 0, n)
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))
