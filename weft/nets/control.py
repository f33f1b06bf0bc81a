"""Networks of continuous control: a policy, and critics that value an observation together with an action.

Their layers are plain, or residual ones as SimBa has them (Lee et al., arXiv 2410.09754): each block normalises what
came, widens it four times, narrows it again and adds it to what came; the sum is normalised in the end.

On a CPU plain layers of whole batches go through kernels of our own (``native/towers.py``), all critics in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from weft.core.specs import SpaceTree
from weft.core.types import Array, Tree
from weft.nets.encoders import MLP, Encoder, dense, has_image
from weft.nets.native import library, towers
from weft.nets.network import Network, NetworkOutput

WIDER = 4
"""How much wider a residual block is inside."""


class Critics(NamedTuple):
    """Several critics: ``init(key) -> params``; ``apply(params, observation, action) -> [count, N]``.

    Observations are ``[N, ...]``, actions ``[N, *shape]``.
    """

    init: Callable[[jax.Array], Tree]
    apply: Callable[[Tree, Tree, Array], jax.Array]


class Layers(nn.Module):
    """What encodes an observation, and an action beside it where there is one: ``[..., hidden[-1]]``.

    With ``blocks`` the layers are residual ones of the width ``hidden[0]``.
    """

    space: Any
    hidden: tuple[int, ...]
    activation: str
    blocks: int

    @nn.compact
    def __call__(self, observation: Tree, action: jax.Array | None = None) -> jax.Array:
        """Encode ``[..., *shape]`` observations and ``[..., n]`` actions."""
        x = Encoder(self.space, ())(observation)
        if action is not None:
            x = jnp.concatenate([x, action], axis=-1)
        if not self.blocks:
            return jnp.asarray(MLP(self.hidden, self.activation, whole=True)(x))
        width = self.hidden[0]
        x = dense(width, 1.0, True)(x)
        for _ in range(self.blocks):
            wider = MLP((WIDER * width,), self.activation, whole=True)(nn.LayerNorm()(x))
            x += dense(width, 2.0**0.5, True)(wider)
        return jnp.asarray(nn.LayerNorm()(x))


class _Policy(nn.Module):
    space: Any
    num_params: int
    hidden: tuple[int, ...]
    activation: str
    blocks: int

    @nn.compact
    def __call__(self, observation: Tree) -> jax.Array:
        x = Layers(self.space, self.hidden, self.activation, self.blocks)(observation)
        return dense(self.num_params, 0.01, True)(x)


class _Critic(nn.Module):
    space: Any
    hidden: tuple[int, ...]
    activation: str
    blocks: int

    @nn.compact
    def __call__(self, observation: Tree, action: jax.Array) -> jax.Array:
        x = Layers(self.space, self.hidden, self.activation, self.blocks)(observation, action)
        return dense(1, 1.0)(x)[..., 0]


def policy_network(
    space: SpaceTree,
    num_params: int,
    *,
    hidden: tuple[int, ...] = (256, 256),
    activation: str = "relu",
    blocks: int = 0,
) -> Network:
    """A network whose ``logits`` are ``num_params`` numbers, all of which depend on the observation; its value is 0."""
    module = _Policy(space, num_params, hidden, activation, blocks)

    def apply(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
        found = _by_kernels(module, (params,), observation)
        logits = jnp.asarray(module.apply({"params": params}, observation)) if found is None else found[0]
        return NetworkOutput(logits, jnp.zeros(logits.shape[:-1]), carry)

    return Network(lambda key: module.init(key, _example(space))["params"], apply)


def critics_network(
    space: SpaceTree,
    action_shape: tuple[int, ...],
    count: int = 2,
    *,
    hidden: tuple[int, ...] = (256, 256),
    activation: str = "relu",
    blocks: int = 0,
) -> Critics:
    """``count`` critics with weights of their own: params are a tuple of theirs.

    XLA computes them one after the other: on a CPU that takes a tenth less than one product of stacked matrices.
    """
    module = _Critic(space, hidden, activation, blocks)

    def flat(action: Array) -> jax.Array:
        return jnp.asarray(action).reshape((*action.shape[: action.ndim - len(action_shape)], -1))

    def init(key: jax.Array) -> Tree:
        action, keys = flat(jnp.zeros(action_shape)), jax.random.split(key, count)
        all_of_them = jax.vmap(lambda one: module.init(one, _example(space), action)["params"])(keys)
        return tuple(jax.tree.map(lambda x, k=k: x[k], all_of_them) for k in range(count))

    def apply(params: Tree, observation: Tree, action: Array) -> jax.Array:
        if (found := _by_kernels(module, params, observation, flat(action))) is not None:
            return jnp.stack([values[:, 0] for values in found])
        return jnp.stack([jnp.asarray(module.apply({"params": one}, observation, flat(action))) for one in params])

    return Critics(init, apply)


def _by_kernels(
    module: _Policy | _Critic, several: tuple[Tree, ...], observation: Tree, action: jax.Array | None = None
) -> tuple[jax.Array, ...] | None:
    """What networks with these params give, ``[N, outputs]`` each, in one call; None where that is left to XLA."""
    if module.blocks or module.activation != "relu" or has_image(module.space):
        return None
    x = jnp.asarray(Encoder(module.space, ()).apply({}, observation))
    if x.ndim != 2:
        return None
    if action is not None:
        x = jnp.concatenate([x, action], axis=-1)
    every = tuple(_layers(params) for params in several)
    return towers.run(every, x) if towers.fits(every, x) and library.available() else None


def _layers(params: Tree) -> towers.Tower:
    """Kernel and bias of each layer of a network without blocks and images."""
    hidden = params["Layers_0"].get("MLP_0", {})
    every = [*(hidden[f"Dense_{k}"] for k in range(len(hidden))), params["Dense_0"]]
    return tuple((layer["kernel"], layer["bias"]) for layer in every)


def _example(space: SpaceTree) -> Tree:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
