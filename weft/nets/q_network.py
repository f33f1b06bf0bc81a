"""Weft's own networks for the values of actions, plain or dueling (Wang et al., arXiv 1511.06581), with memory or not.

With ``quantiles`` it gives so many numbers for each action, of which the value is the mean (arXiv 1710.10044).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import UnknownName
from weft.core.specs import SpaceTree
from weft.core.types import Tree
from weft.nets.actor_critic import CELLS
from weft.nets.encoders import Encoder, dense, has_image
from weft.nets.network import Network, NetworkOutput
from weft.nets.whole_batches import on_a_cpu


class QValues(nn.Module):
    """One encoder, then numbers for each action; dueling: numbers of the state, and an advantage of each action."""

    space: Any
    actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool
    each: int  # numbers for each action
    layer_norm: bool
    whole: bool = False  # as CNN and MLP have it

    @nn.compact
    def __call__(self, observation: Tree) -> jax.Array:
        """``[..., actions, each]`` for ``[..., *shape]`` observations."""
        images = has_image(self.space)
        hidden = () if images else self.hidden
        x = Encoder(self.space, hidden, self.activation, self.whole, layer_norm=self.layer_norm)(observation)
        if images and self.layer_norm:
            x = nn.LayerNorm()(x)
        return _heads(x, self.actions, self.each, self.dueling, self.whole)


class RecurrentQValues(nn.Module):
    """One encoder, one recurrent cell, then a value for each action."""

    space: Any
    actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool
    cell: str
    size: int

    @nn.compact
    def __call__(self, carry: Tree, observation: Tree) -> tuple[Tree, jax.Array]:
        """One step: the next carry, and ``[actions]``."""
        hidden = () if has_image(self.space) else self.hidden[:1]
        x = Encoder(self.space, hidden, self.activation)(observation)
        cell = nn.GRUCell if self.cell == "gru" else nn.OptimizedLSTMCell
        carry, x = cell(self.size)(carry, x)
        return carry, _heads(x, self.actions, 1, self.dueling)[..., 0]


def _heads(x: jax.Array, actions: int, each: int, dueling: bool, whole: bool = False) -> jax.Array:
    """``[..., actions, each]``; for the body of a module."""
    advantage = dense(actions * each, 1.0, whole)(x).reshape((*x.shape[:-1], actions, each))
    if not dueling:
        return advantage
    return dense(each, 1.0, whole)(x)[..., None, :] + advantage - advantage.mean(-2, keepdims=True)


def recurrent_q_network(
    space: SpaceTree,
    actions: int,
    *,
    hidden: tuple[int, ...] = (64,),
    activation: str = "relu",
    dueling: bool = True,
    recurrent: str = "gru",
    recurrent_size: int = 64,
) -> Network:
    """As ``q_network``, with memory: ``recurrent`` is ``gru`` or ``lstm``."""
    if recurrent not in CELLS:
        raise UnknownName("recurrent cell", recurrent, CELLS)
    example = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
    module = RecurrentQValues(space, actions, hidden, activation, dueling, recurrent, recurrent_size)
    zeros = np.zeros(recurrent_size, np.float32)
    start = (zeros, zeros) if recurrent == "lstm" else zeros

    def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
        output: Any = module.apply({"params": params}, carry, observation)
        carry, values = output
        return NetworkOutput(values, values.max(-1), carry)

    return Network(lambda key: module.init(key, start, example)["params"], apply, start)


def q_network(
    space: SpaceTree,
    actions: int,
    *,
    hidden: tuple[int, ...] = (120, 84),
    activation: str = "relu",
    dueling: bool = False,
    quantiles: int = 0,
    layer_norm: bool = False,
) -> Network:
    """A network whose ``logits`` are the values of ``actions`` actions, and whose ``value`` is the highest of them.

    With ``quantiles`` the logits are those of each action in turn. ``layer_norm`` normalises each layer's numbers
    before its activation; of images, those that the CNN gives.
    """
    example = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
    module = QValues(space, actions, hidden, activation, dueling, max(1, quantiles), layer_norm)

    whole = module.clone(whole=True)

    def output(module: QValues, params: Tree, observation: Tree) -> NetworkOutput:
        found = jnp.asarray(module.apply({"params": params}, observation))
        return NetworkOutput(found.reshape((*found.shape[:-2], actions * module.each)), found.mean(-1).max(-1))

    def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
        return output(module, params, observation)._replace(carry=carry)

    net = Network(lambda key: module.init(key, example)["params"], apply)
    return on_a_cpu(net, lambda params, observation: output(whole, params, observation), has_image(space))
