"""Towers of dense layers by the kernels in ``towers.cc``: values, and gradients by the weights and by what came in.

Their products are of float32. Where JAX's own ``jax_default_matmul_precision`` (JAX_DEFAULT_MATMUL_PRECISION in the
environment) is ``"bfloat16"`` when they are traced, the factors are rounded to bfloat16, but for those of first layers,
and the sums are float32, which is quicker on a processor with AVX512_BF16; on others it changes nothing.
Weights, what the layers give and gradients are float32 either way. Denormals become 0 there, and what is next to the
largest of floats infinite.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.nets.native import library

Tower = tuple[tuple[jax.Array, jax.Array], ...]
"""Kernel ``[inputs, outputs]`` and bias of each layer."""
WORTH = 2**15
"""Params of a tower from which on the kernels are worth their compilation; XLA is quick enough with smaller ones."""


class Shape(NamedTuple):
    """What is known of towers before they are called: of each its features, the sizes of its layers, its outputs."""

    towers: tuple[tuple[int, ...], ...]
    half: bool
    """Whether the factors of products are rounded to bfloat16: in the derivative as in what it is of."""

    @property
    def hidden(self) -> int:
        """How many numbers all hidden layers give for a row."""
        return sum(sum(sizes[1:-1]) for sizes in self.towers)

    @property
    def numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As the kernels are told it."""
        return np.array([n for sizes in self.towers for n in (len(sizes) - 1, *sizes)], np.int64)


def shape_of(towers: tuple[Tower, ...]) -> Shape:
    """What is known of towers with these weights, and of what is asked where this is traced."""
    config: Any = jax.config  # whose attributes are made as it runs; this one knows contexts too
    sizes = tuple((tower[0][0].shape[0], *(kernel.shape[1] for kernel, _ in tower)) for tower in towers)
    return Shape(sizes, config.jax_default_matmul_precision == "bfloat16")


def fits(towers: tuple[Tower, ...], x: jax.Array) -> bool:
    """Whether the kernels take these, and are worth it: each tower is large enough."""
    shape = shape_of(towers)
    large = all(sum(n * m for n, m in pairwise(sizes)) >= WORTH for sizes in shape.towers)
    return large and not _wrong(shape, towers, x)


def run(towers: tuple[Tower, ...], x: jax.Array) -> tuple[jax.Array, ...]:
    """What each tower gives for ``x`` ``[N, features]``, with a ReLU after every layer but its last: ``[N, outputs]``.

    Where the kernels are not ``available``, a RuntimeError says why.
    """
    library.require()
    shape = shape_of(towers)
    if wrong := _wrong(shape, towers, x):
        raise TypeError(f"the kernels for towers: {wrong}")
    return _run(shape, towers, x)


def _wrong(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> str:
    """Why the kernels, which look at numbers alone, must not be given these; empty where they may."""
    for sizes, tower in zip(shape.towers, towers, strict=True):
        if len(sizes) < 3:  # the gradient by x is made of slopes of hidden layers
            return f"a hidden layer at least is expected, and a tower has the sizes {sizes}"
        if x.shape[1:] != sizes[:1]:
            return f"rows of {sizes[0]} features are expected, and x is {x.shape}"
        found = [(kernel.shape, bias.shape) for kernel, bias in tower]
        if min(sizes) < 1 or found != [((n, m), (m,)) for n, m in pairwise(sizes)]:
            return f"kernels and biases of layers that follow each other are expected, and they are {found}"
    odd = {str(leaf.dtype) for leaf in (x, *jax.tree.leaves(towers)) if leaf.dtype != jnp.float32}
    return f"float32 is expected, and there is {' and '.join(sorted(odd))}" if odd else ""


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> tuple[jax.Array, ...]:
    return _forward(shape, towers, x, keep=False)[0]


def _forward(shape: Shape, towers: Any, x: jax.Array, *, keep: bool) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """What the towers give, and with ``keep`` what their hidden layers give, as the kernel lays it down."""
    count = x.shape[0]
    hidden = jax.ShapeDtypeStruct((count * shape.hidden if keep else 0,), jnp.float32)
    outs = [jax.ShapeDtypeStruct((count, sizes[-1]), jnp.float32) for sizes in shape.towers]
    call = jax.ffi.ffi_call("weft_towers", [hidden, *outs], vmap_method="sequential")
    kept, *found = call(x, *jax.tree.leaves(towers), towers=shape.numbers, half=shape.half)
    return tuple(found), kept


def _with_hidden(shape: Shape, towers: Any, x: jax.Array) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    found, hidden = _forward(shape, towers, x, keep=True)
    return found, (towers, x, hidden)


def _backward(shape: Shape, kept: tuple[Any, ...], given: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
    """Two calls, so that where only one of the gradients is wanted XLA drops the other's."""
    towers, x, hidden = kept
    like = jax.ShapeDtypeStruct(hidden.shape, jnp.float32)
    above = [kernel for tower in towers for kernel, _ in tower[1:]]
    to_slopes = jax.ffi.ffi_call("weft_towers_slopes", like, vmap_method="sequential")
    slopes = to_slopes(hidden, *given, *above, towers=shape.numbers, half=shape.half)
    leaves, structure = jax.tree.flatten(towers)
    results = [jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in leaves]
    to_weights = jax.ffi.ffi_call("weft_towers_weights", results, vmap_method="sequential")
    by_weights = jax.tree.unflatten(
        structure, to_weights(x, hidden, slopes, *given, towers=shape.numbers, half=shape.half)
    )
    by_x, at = jnp.zeros_like(x), 0
    for tower, sizes in zip(towers, shape.towers, strict=True):
        slope = slopes[at : at + x.shape[0] * sizes[1]].reshape((-1, sizes[1]))
        by_x += slope @ tower[0][0].T
        at += x.shape[0] * sum(sizes[1:-1])
    return by_weights, by_x


_run.defvjp(_with_hidden, _backward)
