"""Two small towers as one GPU kernel forward and one backward, where the plain layers would be dozens.

A policy and a critic of a few layers of 64 compute for a microsecond and are launched for two: each of their products,
sums and activations is a kernel of its own. Here a block of rows goes through both towers in registers. Backward, it
goes through them again, and each block leaves its part of the params' gradients, all in one array; their sum is the
gradient. Nothing is added atomically, so that it is the same each time.

All params come as one vector, and their gradient is one. Where the learner keeps them as a vector too, nothing is
copied between an update and the next pass: XLA sees that a vector cut into leaves and joined again is the vector.

Written in Pallas for Triton. On anything but an NVIDIA GPU the same calls compute layer by layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Tree

ROWS = {"forward": 64, "backward": 32}
"""Of a block, at most."""
WARPS = {"forward": 4, "backward": 4}
"""Of 32 threads, that share a block's work. Both as they were fastest on an H200, for 2,048 and 16,384 rows."""
BLOCKS = 128
"""That rows are cut into, about: as many as a large GPU has multiprocessors."""
WIDEST = 128
"""Features and layers up to here fit into registers."""
ACTIVATIONS = ("tanh", "relu")

Layer = tuple[jax.Array, jax.Array]  # kernel [n, m], bias [m]
Tower = tuple[Layer, ...]
Places = tuple[tuple[tuple[int, int], ...], ...]
"""Where kernel and bias of each layer of each tower begin in the vector of all params."""


class Shape(NamedTuple):
    """What is known of two towers before they are called."""

    towers: tuple[tuple[int, ...], ...]  # of each: features, sizes of its layers, outputs
    activation: str
    interpret: bool = False


def fits(shape: Shape) -> bool:
    """Whether the kernels can compute these towers: layers of powers of two from 16, few features and outputs."""
    for features, *hidden, outputs in shape.towers:
        narrow = features <= WIDEST and outputs <= WIDEST
        if not narrow or not hidden or any(n < 16 or n > WIDEST or n & (n - 1) for n in hidden):
            return False
    return shape.activation in ACTIVATIONS and shape.towers[0][0] == shape.towers[1][0]


def available() -> bool:
    """Whether this process has an NVIDIA GPU and JAX the means to compile for it; ``WEFT_FUSED=0`` says no."""
    if os.environ.get("WEFT_FUSED") == "0" or jax.default_backend() != "gpu":
        return False
    try:
        from jax.experimental.pallas import triton  # noqa: F401  JAX means to drop it one day
    except ImportError:
        return False
    return _lowered()


@cache
def _lowered() -> bool:
    """Whether JAX makes a Triton kernel for this GPU: since 0.11 it refuses those that it does not know by name."""
    tower = (1, 16, 1)
    places = tuple(tuple((start + 32 * k, start + 32 * k + 16) for k in range(2)) for start in (0, 64))
    params, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((128,), (16, 1)))
    try:
        jax.jit(partial(_forward, Shape((tower, tower), "tanh"), places)).lower(params, x)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def starts(params: Tree) -> Tree:
    """Where each leaf of ``params`` begins in ``packed(params)``."""
    leaves, structure = jax.tree.flatten(params)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    return jax.tree.unflatten(structure, [int(n) for n in np.cumsum([0, *sizes[:-1]])])


def packed(params: Tree) -> jax.Array:
    """All leaves as one vector, in the order in which ``jax.flatten_util.ravel_pytree`` has them too."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])


def run(shape: Shape, places: Places, params: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    """Both towers' outputs, ``[N, outputs]`` each, for packed params and features ``x`` ``[N, features]``; float32."""
    return _run(shape, places, params, x)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _run(shape: Shape, places: Places, params: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    layers = partial(_layers, shape, places)
    kernel = _unmapped(partial(_forward, shape, places), layers)
    if shape.interpret:
        return kernel(params, x)  # type: ignore[no-any-return]
    outputs: tuple[jax.Array, ...] = jax.lax.platform_dependent(params, x, cuda=kernel, default=layers)
    return outputs


def _run_forward(shape: Shape, places: Places, params: jax.Array, x: jax.Array) -> tuple[Any, Any]:
    return _run(shape, places, params, x), (params, x)


def _run_backward(
    shape: Shape, places: Places, kept: tuple[jax.Array, jax.Array], given: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    params, x = kept
    # Of the features as the plain layers have it: nobody asks for it as a rule, and then it is not computed.
    _, of_features = jax.vjp(lambda x: _layers(shape, places, params, x), x)
    layers = partial(_layers_backward, shape, places)
    kernel = _unmapped(partial(_backward, shape, places), layers)
    if shape.interpret:
        return kernel(params, x, given), of_features(given)[0]
    gradient = jax.lax.platform_dependent(params, x, given, cuda=kernel, default=layers)
    return gradient, of_features(given)[0]


_run.defvjp(_run_forward, _run_backward)


def _unmapped(kernel: Callable[..., Any], layers: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel``, and ``layers`` where that is mapped over: several seeds side by side have params of their own."""
    call = jax.custom_batching.custom_vmap(kernel)

    @call.def_vmap
    def over(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
        found = jax.vmap(layers, axes)(*args)
        return found, jax.tree.map(lambda _: True, found)

    return call


def plain(tower: Tower, activation: str, x: jax.Array) -> jax.Array:
    """One tower layer by layer; no activation after the last."""
    act: Callable[[jax.Array], jax.Array] = jnp.tanh if activation == "tanh" else jax.nn.relu
    for kernel, bias in tower[:-1]:
        x = act(x @ kernel + bias)
    return x @ tower[-1][0] + tower[-1][1]


def _layers(shape: Shape, places: Places, params: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    def layer(place: tuple[int, int], n: int, m: int) -> Layer:
        kernel, bias = place
        return params[kernel : kernel + n * m].reshape(n, m), params[bias : bias + m]

    towers = (tuple(map(layer, each, sizes, sizes[1:])) for each, sizes in zip(places, shape.towers, strict=True))
    return tuple(plain(tower, shape.activation, x) for tower in towers)


def _layers_backward(
    shape: Shape, places: Places, params: jax.Array, x: jax.Array, given: tuple[jax.Array, ...]
) -> jax.Array:
    _, back = jax.vjp(lambda params: _layers(shape, places, params, x), params)
    gradient: jax.Array = back(given)[0]
    return gradient


# ---- the kernels -----------------------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    """A leaf inside the vector of all params, while a kernel runs; of a bias ``n`` is 0."""

    params: Any  # a reference to the vector
    start: int
    n: int
    m: int


def _inside(shape: Shape, places: Places, params: Any) -> list[list[tuple[_Matrix, _Matrix]]]:
    """The layers of each tower."""
    return [
        [
            (_Matrix(params, kernel, n, m), _Matrix(params, bias, 0, m))
            for (kernel, bias), n, m in zip(place, sizes, sizes[1:], strict=False)
        ]
        for place, sizes in zip(places, shape.towers, strict=True)
    ]


def _forward(shape: Shape, places: Places, params: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    from jax.experimental import pallas as pl

    count = x.shape[0]
    rows = _rows(count, "forward")

    def kernel(x_ref: Any, params_ref: Any, *outs: Any) -> None:
        at, which = pl.program_id(0) * rows + jnp.arange(rows), pl.program_id(1)
        for k, (tower, out) in enumerate(zip(_inside(shape, places, params_ref), outs, strict=True)):

            @pl.when(which == k)
            def _(tower: Any = tower, out: Any = out) -> None:
                value = _load(x_ref, at, count, x.shape[1])
                _store(out, at, count, out.shape[1], _through(shape, tower, value)[-1])

    outputs = tuple(jax.ShapeDtypeStruct((count, sizes[-1]), jnp.float32) for sizes in shape.towers)
    call = pl.pallas_call(
        kernel,
        out_shape=outputs,
        grid=(pl.cdiv(count, rows), len(shape.towers)),
        interpret=shape.interpret,
        compiler_params=_params(WARPS["forward"]),
        name="towers_forward",
    )
    return tuple(call(x, params))


def _backward(shape: Shape, places: Places, params: jax.Array, x: jax.Array, given: tuple[jax.Array, ...]) -> jax.Array:
    from jax.experimental import pallas as pl

    count, length = x.shape[0], params.shape[0]
    rows = _rows(count, "backward")
    blocks = min(BLOCKS, pl.cdiv(count, rows))
    turns = pl.cdiv(count, rows * blocks)

    def kernel(x_ref: Any, params_ref: Any, *refs: Any) -> None:
        *given_refs, out = refs
        block, which = pl.program_id(0), pl.program_id(1)
        for k, (tower, dy_ref) in enumerate(zip(_inside(shape, places, params_ref), given_refs, strict=True)):

            @pl.when(which == k)
            def _(tower: Any = tower, dy_ref: Any = dy_ref) -> None:
                def turn(i: Any, sums: list[Any]) -> list[Any]:
                    at = (block * turns + i) * rows + jnp.arange(rows)
                    x = _load(x_ref, at, count, x_ref.shape[1])
                    found = _gradient(shape, tower, x, _load(dy_ref, at, count, dy_ref.shape[1]))
                    return [one + new for one, new in zip(sums, found, strict=True)]

                leaves = [leaf for layer in tower for leaf in layer]
                zeros = [jnp.zeros([_wide(n) for n in (leaf.n, leaf.m) if n], jnp.float32) for leaf in leaves]
                sums = turn(0, zeros) if turns == 1 else jax.lax.fori_loop(0, turns, turn, zeros)
                for value, leaf in zip(sums, leaves, strict=True):
                    _put(out, block, leaf, value)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((blocks, length), jnp.float32),
        grid=(blocks, len(shape.towers)),
        interpret=shape.interpret,
        compiler_params=_params(WARPS["backward"]),
        name="towers_backward",
    )
    total: jax.Array = jnp.sum(call(x, params, *given), axis=0)
    computed = np.zeros(length, np.bool_)
    for tower in _inside(shape, places, None):
        for leaf in (leaf for layer in tower for leaf in layer):
            computed[leaf.start : leaf.start + max(leaf.n, 1) * leaf.m] = True
    return total if computed.all() else jnp.where(computed, total, 0.0)  # what no tower has, nobody has written


def _gradient(shape: Shape, tower: Any, x: Any, delta: Any) -> list[Any]:
    """The gradients of a tower's leaves over a block of rows; ``delta`` is that of its outputs."""
    seen = _through(shape, tower, x)
    found: list[Any] = []
    for k in reversed(range(len(tower))):
        found = [_dot(seen[k], delta, 0, 0), jnp.sum(delta, axis=0), *found]
        if k:
            slope = 1.0 - seen[k] * seen[k] if shape.activation == "tanh" else jnp.where(seen[k] > 0.0, 1.0, 0.0)
            delta = _dot(delta, _leaf(tower[k][0]), 1, 1) * slope
    return found


def _through(shape: Shape, tower: Any, x: Any) -> list[Any]:
    """What enters each layer, and last what leaves the last, ``[rows, wide]``; ``tower`` holds references."""
    seen = [x]
    for k, (weights, bias) in enumerate(tower):
        y = _dot(seen[-1], _leaf(weights), 1, 0) + _leaf(bias)[None, :]
        if k < len(tower) - 1:
            y = jnp.tanh(y) if shape.activation == "tanh" else jnp.maximum(y, 0.0)
        seen.append(y)
    return seen


def _dot(a: Any, b: Any, of_a: int, of_b: int) -> Any:
    """Their product over axis ``of_a`` of the one and ``of_b`` of the other; in TF32, as XLA has it by default."""
    return jax.lax.dot_general(a, b, (((of_a,), (of_b,)), ((), ())), preferred_element_type=jnp.float32)


def _rows(count: int, way: str) -> int:
    """Of a block: few enough that all of the GPU has some."""
    return min(ROWS[way], max(16, _power(count // BLOCKS)))


def _wide(n: int) -> int:
    """A size as the kernels have it: a power of two, which a product takes from 16 on."""
    return max(16, _power(n))


def _power(n: int) -> int:
    """The power of two from ``n`` on."""
    return 1 << max(0, int(n) - 1).bit_length()


def _load(ref: Any, at: Any, count: int, columns: int) -> Any:
    from jax.experimental.pallas import triton

    across = jnp.arange(_wide(columns))
    inside = (at[:, None] < count) & (across[None, :] < columns)
    return triton.load(ref.at[at[:, None], across[None, :]], mask=inside, other=0.0)


def _store(ref: Any, at: Any, count: int, columns: int, value: Any) -> None:
    from jax.experimental.pallas import triton

    across = jnp.arange(_wide(columns))
    inside = (at[:, None] < count) & (across[None, :] < columns)
    triton.store(ref.at[at[:, None], across[None, :]], value, mask=inside)


def _where(leaf: _Matrix) -> tuple[Any, Any]:
    """The places of a leaf in the vector, ``[wide n, wide m]`` or ``[wide m]``, and which of them are its own."""
    across = jnp.arange(_wide(leaf.m))
    if not leaf.n:
        return leaf.start + across, across < leaf.m
    down = jnp.arange(_wide(leaf.n))
    own = (down[:, None] < leaf.n) & (across[None, :] < leaf.m)
    return leaf.start + down[:, None] * leaf.m + across[None, :], own


def _leaf(leaf: _Matrix) -> Any:
    from jax.experimental.pallas import triton

    at, own = _where(leaf)
    return triton.load(leaf.params.at[at], mask=own, other=0.0)


def _put(out: Any, block: Any, leaf: _Matrix, value: Any) -> None:
    """A leaf's gradient into a block's row."""
    from jax.experimental.pallas import triton

    at, own = _where(leaf)
    triton.store(out.at[block, at], value, mask=own)


def _params(warps: int) -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=warps)
