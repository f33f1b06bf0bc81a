"""Convolutions of images by the kernels in ``convolution.cc``: values, and gradients by the weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.nets.native import library

Weights = tuple[tuple[jax.Array, jax.Array], ...]
"""Kernel and bias of each layer."""
LANES = 16
"""Features come in multiples of it: the numbers of the widest vectors."""


class Layer(NamedTuple):
    """One convolution: ``features`` filters of ``size`` by ``size``, ``stride`` apart, without padding."""

    features: int
    size: int
    stride: int


class Shape(NamedTuple):
    """What is known of a stack of convolutions before it is called: ``[height, width, channels]`` images, layers.

    With ``planes`` an image comes as ``[channels, height, width]``.
    """

    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    planes: bool = False

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of what each layer gives; below 1 where its filters are larger than what comes in."""
        (rows, columns, _), found = self.image, []
        for layer in self.layers:
            rows, columns = ((n - layer.size) // layer.stride + 1 for n in (rows, columns))
            found.append((rows, columns))
        return tuple(found)

    @property
    def outputs(self) -> tuple[int, ...]:
        """How many numbers each layer gives for an image."""
        return tuple(r * c * layer.features for (r, c), layer in zip(self.sides, self.layers, strict=True))

    @property
    def numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As the kernels are told it."""
        return np.array([*self.image, *(n for f, size, stride in self.layers for n in (size, stride, f))], np.int64)


def fits(shape: Shape) -> bool:
    """Whether the kernels can compute it."""
    whole_vectors = all(layer.features % LANES == 0 for layer in shape.layers)
    return whole_vectors and all(min(sides) > 0 for sides in shape.sides)


def takes(shape: Shape, images: jax.Array, weights: Sequence[tuple[jax.Array, jax.Array]]) -> bool:
    """Whether images and weights are of this shape, bytes and float32: the kernels look at numbers alone."""
    rows, columns, channels = shape.image
    wanted = []
    for layer in shape.layers:
        wanted.append(((layer.size, layer.size, channels, layer.features), (layer.features,)))
        channels = layer.features
    each = (shape.image[2], rows, columns) if shape.planes else shape.image
    found = [(kernel.shape, bias.shape) for kernel, bias in weights]
    numbers = all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(list(weights)))
    return images.shape[1:] == each and images.dtype == jnp.uint8 and found == wanted and numbers


def convolutions(shape: Shape, images: jax.Array, weights: Sequence[tuple[jax.Array, jax.Array]]) -> jax.Array:
    """``[N, ...]`` images of bytes, divided by 255, through all layers, with a ReLU after each: ``[N, n]``.

    ``weights``: kernel ``[size, size, channels, features]`` and bias of each layer. Where the kernels are not
    ``available``, a RuntimeError says why.
    """
    library.require()
    if not (fits(shape) and takes(shape, images, weights)):
        told = jax.tree.map(lambda leaf: f"{leaf.dtype}{leaf.shape}", (images, list(weights)))
        raise TypeError(f"the kernels for convolutions: bytes and float32 of {shape} are expected, there are {told}")
    return _convolved(shape, images, tuple(weights))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolved(shape: Shape, images: jax.Array, weights: Weights) -> jax.Array:
    return _forward(shape, images, weights, keep=False)[0]


def _forward(shape: Shape, images: jax.Array, weights: Weights, *, keep: bool) -> tuple[jax.Array, jax.Array]:
    """What the last layer gives, and where ``keep`` is set, what the others give: as the kernel lays it down."""
    count, (*hidden, last) = images.shape[0], shape.outputs
    kept = count * sum(hidden) if keep else 0
    results = jax.ShapeDtypeStruct((count, last), jnp.float32), jax.ShapeDtypeStruct((kept,), jnp.float32)
    call = jax.ffi.ffi_call("weft_convolve", results, vmap_method="sequential")
    out, between = call(images, *jax.tree.leaves(weights), layers=shape.numbers, planes=shape.planes)
    return out, between


def _with_hidden(shape: Shape, images: jax.Array, weights: Weights) -> tuple[jax.Array, tuple[Any, ...]]:
    out, hidden = _forward(shape, images, weights, keep=True)
    return out, (images, weights, out, hidden)


def _backward(shape: Shape, kept: tuple[Any, ...], slope: jax.Array) -> tuple[Any, Weights]:
    images, weights, out, hidden = kept
    results = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), weights)
    leaves, structure = jax.tree.flatten(results)
    call = jax.ffi.ffi_call("weft_convolve_back", leaves, vmap_method="sequential")
    inputs = images, out, hidden, slope, *(kernel for kernel, _ in weights)
    found = call(*inputs, layers=shape.numbers, planes=shape.planes)
    return np.zeros(images.shape, jax.dtypes.float0), jax.tree.unflatten(structure, found)


_convolved.defvjp(_with_hidden, _backward)
