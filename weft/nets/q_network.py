"""Weft's own network for the values of actions, plain or dueling (Wang et al., arXiv 1511.06581)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from weft.core.specs import SpaceTree
from weft.core.types import Tree
from weft.nets.encoders import Encoder, dense, has_image
from weft.nets.network import Network, NetworkOutput


class QValues(nn.Module):
    """One encoder, then a value for each action; dueling: a value of the state and an advantage of each action."""

    space: Any
    actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool

    @nn.compact
    def __call__(self, observation: Tree) -> jax.Array:
        """``[..., actions]`` for ``[..., *shape]`` observations."""
        hidden = () if has_image(self.space) else self.hidden
        x = Encoder(self.space, hidden, self.activation)(observation)
        advantage = dense(self.actions, 1.0)(x)
        if not self.dueling:
            return advantage
        return dense(1, 1.0)(x) + advantage - advantage.mean(-1, keepdims=True)


def q_network(
    space: SpaceTree,
    actions: int,
    *,
    hidden: tuple[int, ...] = (120, 84),
    activation: str = "relu",
    dueling: bool = False,
) -> Network:
    """A network whose ``logits`` are the values of ``actions`` actions, and whose ``value`` is the highest of them."""
    example = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
    module = QValues(space, actions, hidden, activation, dueling)

    def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
        values = jnp.asarray(module.apply({"params": params}, observation))
        return NetworkOutput(values, values.max(-1), carry)

    return Network(lambda key: module.init(key, example)["params"], apply)
