"""The values of a team's agents mixed into the team's (QMIX: Rashid et al., arXiv 1803.11485).

    weights, bias = hyper-networks of the state                          weights are made positive
    hidden = elu(values · |weights| + bias)                              [size]
    team   = hidden · |weights'| + bias'                                 bias' may be any function of the state

Every weight on the way from an agent's value to the team's is at least 0, and so is elu's slope: the team's value never
falls where an agent's grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from weft.core.specs import SpaceTree
from weft.core.types import Array, Tree
from weft.nets.encoders import MLP, Encoder, dense


class Mixer(NamedTuple):
    """``init(key) -> params``; ``apply(params, state, values) -> [...]`` of ``[..., A]`` values."""

    init: Callable[[jax.Array], Tree]
    apply: Callable[[Tree, Tree, Array], jax.Array]


class _Monotonic(nn.Module):
    space: Any
    agents: int
    size: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, state: Tree, values: jax.Array) -> jax.Array:
        x = Encoder(self.space, ())(state)

        def hyper(size: int, hidden: tuple[int, ...]) -> jax.Array:
            return dense(size, 1.0)(MLP(hidden, "relu")(x) if hidden else x)

        weights = jnp.abs(hyper(self.agents * self.size, self.hidden)).reshape((*x.shape[:-1], self.agents, self.size))
        mixed = jax.nn.elu(jnp.einsum("...a,...as->...s", values, weights) + hyper(self.size, ()))
        last = jnp.abs(hyper(self.size, self.hidden))
        return jnp.sum(mixed * last, -1) + hyper(1, (self.size,))[..., 0]


def monotonic_mixer(space: SpaceTree, agents: int, *, size: int = 32, hidden: tuple[int, ...] = (64,)) -> Mixer:
    """A mixer of the values of ``agents`` agents in states of ``space``, with ``size`` units in its hidden layer.

    ``hidden`` are the layers of the hyper-networks that make its weights. The biases come from the state by one layer,
    the last one by two.
    """
    module = _Monotonic(space, agents, size, hidden)
    state = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))

    def apply(params: Tree, state: Tree, values: Array) -> jax.Array:
        return jnp.asarray(module.apply({"params": params}, state, values))

    return Mixer(lambda key: module.init(key, state, jnp.zeros(agents))["params"], apply)
