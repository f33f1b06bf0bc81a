"""Weft's own policy and value networks, chosen by the observation's shape and by ``recurrent``."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import UnknownName
from weft.core.specs import SpaceTree
from weft.core.types import Tree
from weft.nets import fused_towers
from weft.nets.encoders import Encoder, dense, has_image
from weft.nets.network import Network, NetworkOutput
from weft.nets.whole_batches import Batch, in_batches, on_a_cpu

CELLS = ("gru", "lstm")


class FeedForward(nn.Module):
    """Two separate towers for vectors; one shared encoder where observations have images."""

    space: Any
    num_params: int
    hidden: tuple[int, ...]
    activation: str
    deviation: float | None
    whole: bool = False  # as CNN and MLP have it
    attention: int = 0  # as Encoder has it

    @nn.compact
    def __call__(self, observation: Tree) -> NetworkOutput:
        """Logits and value for ``[..., *shape]`` observations."""
        if has_image(self.space):
            policy = critic = Encoder(self.space, (), self.activation, self.whole)(observation)
        else:
            policy = Encoder(self.space, self.hidden, self.activation, self.whole, False, self.attention)(observation)
            critic = Encoder(self.space, self.hidden, self.activation, self.whole, False, self.attention)(observation)
        logits = _Head(self.num_params, self.deviation, self.whole)(policy)
        return NetworkOutput(logits, dense(1, 1.0, self.whole)(critic)[..., 0])


class Recurrent(nn.Module):
    """One encoder, one recurrent cell, then the two heads."""

    space: Any
    num_params: int
    hidden: tuple[int, ...]
    activation: str
    deviation: float | None
    cell: str
    size: int
    attention: int = 0  # as Encoder has it

    @nn.compact
    def __call__(self, carry: Tree, observation: Tree) -> NetworkOutput:
        """One step: logits, value and the next carry."""
        hidden = () if has_image(self.space) else self.hidden[:1]
        x = Encoder(self.space, hidden, self.activation, attention=self.attention)(observation)
        cell = nn.GRUCell if self.cell == "gru" else nn.OptimizedLSTMCell
        carry, x = cell(self.size)(carry, x)
        return NetworkOutput(_Head(self.num_params, self.deviation)(x), dense(1, 1.0)(x)[..., 0], carry)


class _Head(nn.Module):
    """The distribution's parameters; with a ``deviation`` the second half, the logs of deviations, begins with it.

    It is then learned, and does not depend on the state.
    """

    num_params: int
    deviation: float | None
    whole: bool = False  # as MLP has it

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.deviation is None:
            return dense(self.num_params, 0.01, self.whole)(x)
        mean = dense(self.num_params // 2, 0.01, self.whole)(x)
        log_std = self.param("log_std", nn.initializers.constant(math.log(self.deviation)), (self.num_params // 2,))
        return jnp.concatenate([mean, jnp.broadcast_to(log_std, mean.shape)], axis=-1)


Head = _Head  # flax names the params, and draws them, by the class's own name, which checkpoints have


def actor_critic(
    space: SpaceTree,
    num_params: int,
    *,
    hidden: tuple[int, ...] = (64, 64),
    activation: str = "tanh",
    deviation: float | None = None,
    recurrent: str = "",
    recurrent_size: int = 64,
    attention: int = 0,
) -> Network:
    """A network for observations in ``space`` with ``num_params`` distribution parameters.

    ``recurrent`` is empty, ``gru`` or ``lstm``; ``deviation``, for continuous actions, is what the
    second half of the parameters begins with: it does not depend on the state. ``attention`` is the size of an entity's
    embedding (``entities.py``); 0: they are flattened.
    """
    example = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
    if not recurrent:
        module = FeedForward(space, num_params, hidden, activation, deviation, attention=attention)

        def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
            output = NetworkOutput(*module.apply({"params": params}, observation))
            return output._replace(carry=carry)

        net = Network(lambda key: module.init(key, example)["params"], apply)
        small = fused_towers.available() and not attention and not has_image(space)
        if small and (towers := _by_towers(module, net)) is not None:
            return in_batches(net, towers)
        whole = module.clone(whole=True)
        return on_a_cpu(net, lambda params, x: NetworkOutput(*whole.apply({"params": params}, x)), has_image(space))
    if recurrent not in CELLS:
        raise UnknownName("recurrent cell", recurrent, CELLS)
    cell = Recurrent(space, num_params, hidden, activation, deviation, recurrent, recurrent_size, attention)
    zeros = np.zeros(recurrent_size, np.float32)
    start = (zeros, zeros) if recurrent == "lstm" else zeros
    return Network(
        init=lambda key: cell.init(key, start, example)["params"],
        apply=lambda params, carry, observation: NetworkOutput(*cell.apply({"params": params}, carry, observation)),
        carry=start,
    )


def _by_towers(module: FeedForward, net: Network) -> Batch | None:
    """Both towers in one kernel, on a GPU; None where they do not fit."""
    schema = jax.eval_shape(net.init, jax.eval_shape(lambda: jax.random.key(0)))
    shape = fused_towers.Shape(tuple(_sizes(tower) for tower in _towers(schema)), module.activation)
    places = _towers(fused_towers.starts(schema))

    def batch(params: Tree, observation: Tree) -> NetworkOutput:
        features: Any = jax.vmap(lambda x: Encoder(module.space, ()).apply({}, x))(observation)
        logits, value = fused_towers.run(shape, places, fused_towers.packed(params), features)
        if module.deviation is not None:
            log_std = jnp.broadcast_to(params["_Head_0"]["log_std"], logits.shape)
            logits = jnp.concatenate([logits, log_std], axis=-1)
        return NetworkOutput(logits, value[..., 0])

    return batch if fused_towers.fits(shape) else None


def _towers(params: Tree) -> tuple[tuple[tuple[Any, Any], ...], ...]:
    """Kernel and bias of the layers of policy and critic, each with its head."""
    heads = params["_Head_0"]["Dense_0"], params["Dense_0"]
    encoders = params["Encoder_0"]["MLP_0"], params["Encoder_1"]["MLP_0"]
    return tuple(
        tuple((layer["kernel"], layer["bias"]) for layer in (*(mlp[name] for name in sorted(mlp)), head))
        for mlp, head in zip(encoders, heads, strict=True)
    )


def _sizes(tower: tuple[tuple[Any, Any], ...]) -> tuple[int, ...]:
    return tower[0][0].shape[0], *(kernel.shape[1] for kernel, _ in tower)
