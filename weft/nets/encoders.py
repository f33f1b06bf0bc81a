"""Encoders turn an observation of any shape into a vector. Observations may have batch axes in front."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, MultiBinary, MultiDiscrete, Space, SpaceTree
from weft.core.types import Tree
from weft.nets.convolution import Convolution, Way, convolve, in_parts
from weft.nets.entities import SEEN, Entities, entities_of
from weft.nets.native import library
from weft.nets.native.convolution import Layer, Shape, convolutions, fits, takes
from weft.nets.product import product

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


class MLP(nn.Module):
    """Dense layers with an activation after each: ``[..., n]`` to ``[..., sizes[-1]]``.

    With ``layer_norm`` each layer's numbers are normalised before the activation (Ba et al., arXiv 1607.06450).
    ``whole``: as ``dense`` has it.
    """

    sizes: tuple[int, ...]
    activation: str = "tanh"
    layer_norm: bool = False
    whole: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Run the layers."""
        for size in self.sizes:
            x = dense(size, float(np.sqrt(2)), self.whole)(x)
            x = ACTIVATIONS[self.activation](nn.LayerNorm()(x) if self.layer_norm else x)
        return x


class CNN(nn.Module):
    """Convolutions, then one dense layer: ``[..., *shape]`` to ``[..., 512]``, or to ``[..., 128]`` for small images.

    With at least 36 pixels on each side it is the network of Mnih et al. 2015 (doi 10.1038/nature14236); smaller images
    get two small layers. ``whole``: the batch is all there is, not one image of many that this is mapped over.
    """

    shape: tuple[int, ...]  # of an image: [H, W], [H, W, C] or [C, H, W]
    whole: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Scale bytes to 1, convolve, flatten, one dense layer."""
        batch = x.shape[: x.ndim - len(self.shape)]
        image = jax.eval_shape(lambda x: channels_last(x, self.shape), jax.ShapeDtypeStruct(self.shape, x.dtype)).shape
        large = min(image[0], image[1]) >= 36
        layers = (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1)) if large else (Layer(16, 3, 1), Layer(32, 3, 2))
        channels = [image[-1], *(layer.features for layer in layers)]
        weights = [Convolution(layer.features, layer.size)(n) for layer, n in zip(layers, channels, strict=False)]
        shape = Shape((image[0], image[1], image[2]), layers, planes=_channels_first(self.shape))
        x = x.reshape((-1, *self.shape))  # convolutions take exactly one batch axis
        seen = x if shape.planes else x.reshape((-1, *shape.image))  # [H, W] has one channel
        if self.whole and fits(shape) and takes(shape, seen, weights) and library.available():
            x = convolutions(shape, seen, weights)
        else:
            x = self._by_xla(channels_last(x, self.shape), weights, layers)
        x = jax.nn.relu(dense(512 if large else 128, float(np.sqrt(2)), self.whole)(x))
        return x.reshape((*batch, x.shape[-1]))

    def _by_xla(
        self, x: jax.Array, weights: Sequence[tuple[jax.Array, jax.Array]], layers: tuple[Layer, ...]
    ) -> jax.Array:
        on_cpu = jax.default_backend() == "cpu"
        way: Way = "xla" if not on_cpu else "rows" if self.whole else "patches"

        def convolved(x: jax.Array) -> jax.Array:
            x = x.astype(jnp.float32) / 255.0
            for (kernel, bias), layer in zip(weights, layers, strict=True):
                x = jax.nn.relu(convolve(x, kernel, layer.stride, way) + bias)
            return x.reshape((x.shape[0], -1))

        return in_parts(convolved, x) if way == "rows" else convolved(x)


class Encoder(nn.Module):
    """Any observation to a vector: each leaf encoded by its space, concatenated, then an MLP if ``hidden`` has layers.

    Images (see ``is_image``) go through a CNN, integers become one-hot, the rest is flattened.
    """

    space: Any  # SpaceTree; flax turns a dict into a FrozenDict, which is also a Mapping
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    whole: bool = False  # as CNN and MLP have it
    layer_norm: bool = False  # as MLP has it
    attention: int = 0  # size of an entity's embedding; 0: entities are flattened like the rest

    @nn.compact
    def __call__(self, observation: Tree) -> jax.Array:
        """Encode ``[..., *shape]`` leaves to ``[..., features]``."""
        kinds = entities_of(self.space) if self.attention else []
        apart = {name for kind in kinds for name in (kind, f"{kind}{SEEN}")}
        space = {k: v for k, v in self.space.items() if k not in apart} if kinds else self.space
        parts = [self._leaf(one, leaf) for one, leaf in _zip_leaves(space, observation)]
        x = parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1) if parts else jnp.zeros(())
        if kinds:
            x = x if parts else jnp.zeros((*observation[f"{kinds[0]}{SEEN}"].shape[:-1], 0))
            x = jnp.concatenate([x, Entities(tuple(kinds), self.attention)(x, observation)], axis=-1)
        return MLP(self.hidden, self.activation, self.layer_norm, self.whole)(x) if self.hidden else x

    def _leaf(self, space: Space, x: jax.Array) -> jax.Array:
        match space:
            case Box(shape=shape) if is_image(space):
                return CNN(shape, self.whole)(x)
            case Box(shape=shape):
                return x.astype(jnp.float32).reshape((*x.shape[: x.ndim - len(shape)], math.prod(shape)))
            case Discrete(n=n):
                return jax.nn.one_hot(x, n)
            case MultiDiscrete(nvec=nvec):
                return jnp.concatenate([jax.nn.one_hot(x[..., i], n) for i, n in enumerate(nvec)], axis=-1)
            case MultiBinary():
                return x.astype(jnp.float32)
        raise ConfigError(f"no encoder for the space {space!r}; give the algorithm a network of your own")


def is_image(space: SpaceTree) -> bool:
    """Whether a space holds images: uint8, ``[H, W]``, ``[H, W, C]`` or ``[C, H, W]``, and large enough to convolve."""
    if not isinstance(space, Box) or space.dtype != "uint8" or len(space.shape) not in (2, 3):
        return False
    sides = space.shape[1:] if _channels_first(space.shape) else space.shape[:2]
    return min(sides) >= 7


def channels_last(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """An image of ``shape``, with any batch axes in front, as ``[..., H, W, C]``."""
    if len(shape) == 2:
        return x[..., None]
    return jnp.moveaxis(x, -3, -1) if _channels_first(shape) else x


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Whether channels come first, as in frame stacks and PyTorch: a few channels, then two longer sides."""
    return len(shape) == 3 and shape[0] < 7 and min(shape[1:]) >= 7 and shape[0] < shape[2]


def has_image(space: SpaceTree) -> bool:
    """Whether any leaf of a space tree holds images."""
    if isinstance(space, tuple):
        return any(has_image(s) for s in space)
    if isinstance(space, Mapping):
        return any(has_image(s) for s in space.values())
    return is_image(space)


def dense(size: int, scale: float, whole: bool = False) -> nn.Dense:
    """A dense layer with orthogonal initial weights of the given gain, and initial bias 0.

    ``whole``: it is given ``[N, n]`` where it is trained, and not one sample of many that this is mapped over.
    """
    return nn.Dense(size, kernel_init=nn.initializers.orthogonal(scale), dot_general=product if whole else None)


def _zip_leaves(space: SpaceTree, tree: Tree) -> list[tuple[Space, jax.Array]]:
    if isinstance(space, tuple):
        return [pair for i, s in enumerate(space) for pair in _zip_leaves(s, tree[i])]
    if isinstance(space, Mapping):
        return [pair for k in sorted(space) for pair in _zip_leaves(space[k], tree[k])]
    return [(space, tree)]
