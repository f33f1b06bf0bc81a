"""Two small towers as one GPU kernel forward and one backward, where the plain layers would be dozens.

A policy and a critic of a few layers of 64 compute for a microsecond and are launched for two: each of their products,
sums and activations is a kernel of its own. Here a block of rows goes through both towers in registers. Backward, it
goes through them again, and each block leaves its part of the params' gradients, all in one array; their sum is the
gradient. Nothing is added atomically, so that it is the same each time.

Written in Pallas for Triton. On anything but an NVIDIA GPU the same calls compute layer by layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
    return True


def run(shape: Shape, towers: Sequence[Tower], x: jax.Array) -> tuple[jax.Array, ...]:
    """Both towers' outputs, ``[N, outputs]`` each, for features ``x`` ``[N, features]``; float32."""
    return _run(shape, tuple(towers), x)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> tuple[jax.Array, ...]:
    layers = partial(_layers, shape)
    kernel = _unmapped(partial(_forward, shape), layers)
    if shape.interpret:
        return kernel(towers, x)  # type: ignore[no-any-return]
    outputs: tuple[jax.Array, ...] = jax.lax.platform_dependent(towers, x, cuda=kernel, default=layers)
    return outputs


def _run_forward(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> tuple[Any, Any]:
    return _run(shape, towers, x), (towers, x)


def _run_backward(shape: Shape, kept: tuple[Any, Any], given: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
    towers, x = kept
    # Of the features as the plain layers have it: nobody asks for it as a rule, and then it is not computed.
    _, of_features = jax.vjp(lambda x: _layers(shape, towers, x), x)
    layers = partial(_layers_backward, shape)
    kernel = _unmapped(partial(_backward, shape), layers)
    if shape.interpret:
        return kernel(towers, x, given), of_features(given)[0]
    gradient = jax.lax.platform_dependent(towers, x, given, cuda=kernel, default=layers)
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


def _layers(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(plain(tower, shape.activation, x) for tower in towers)


def _layers_backward(
    shape: Shape, towers: tuple[Tower, ...], x: jax.Array, given: tuple[jax.Array, ...]
) -> tuple[Tower, ...]:
    _, back = jax.vjp(lambda towers: _layers(shape, towers, x), towers)
    gradient: tuple[Tower, ...] = back(given)[0]
    return gradient


# ---- the kernels -----------------------------------------------------------------------------------------------------


def _forward(shape: Shape, towers: tuple[Tower, ...], x: jax.Array) -> tuple[jax.Array, ...]:
    from jax.experimental import pallas as pl

    count = x.shape[0]
    rows = _rows(count, "forward")
    leaves, structure = jax.tree.flatten(towers)

    def kernel(x_ref: Any, *refs: Any) -> None:
        params = jax.tree.unflatten(structure, refs[: len(leaves)])
        at, which = pl.program_id(0) * rows + jnp.arange(rows), pl.program_id(1)
        for k, (tower, out) in enumerate(zip(params, refs[len(leaves) :], strict=True)):

            @pl.when(which == k)
            def _(tower: Any = tower, out: Any = out) -> None:
                value = _load(x_ref, at, count, x.shape[1])
                _store(out, at, count, out.shape[1], _through(shape, tower, value)[-1])

    outputs = tuple(jax.ShapeDtypeStruct((count, sizes[-1]), jnp.float32) for sizes in shape.towers)
    call = pl.pallas_call(
        kernel,
        out_shape=outputs,
        grid=(pl.cdiv(count, rows), len(towers)),
        interpret=shape.interpret,
        compiler_params=_params(WARPS["forward"]),
        name="towers_forward",
    )
    return tuple(call(x, *leaves))


def _backward(shape: Shape, towers: tuple[Tower, ...], x: jax.Array, given: tuple[jax.Array, ...]) -> tuple[Tower, ...]:
    from jax.experimental import pallas as pl

    count = x.shape[0]
    rows = _rows(count, "backward")
    blocks = min(BLOCKS, pl.cdiv(count, rows))
    turns = pl.cdiv(count, rows * blocks)
    leaves, structure = jax.tree.flatten(towers)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    starts = [int(n) for n in np.cumsum([0, *sizes])]
    places = jax.tree.unflatten(structure, starts[:-1])  # of each leaf in a block's row

    def kernel(x_ref: Any, *refs: Any) -> None:
        params, out = jax.tree.unflatten(structure, refs[: len(leaves)]), refs[-1]
        block, which = pl.program_id(0), pl.program_id(1)
        for k, (tower, dy_ref) in enumerate(zip(params, refs[len(leaves) : -1], strict=True)):

            @pl.when(which == k)
            def _(tower: Any = tower, dy_ref: Any = dy_ref, place: Any = places[k]) -> None:
                def turn(i: Any, sums: list[Any]) -> list[Any]:
                    at = (block * turns + i) * rows + jnp.arange(rows)
                    x = _load(x_ref, at, count, x_ref.shape[1])
                    found = _gradient(shape, tower, x, _load(dy_ref, at, count, dy_ref.shape[1]))
                    return [one + new for one, new in zip(sums, found, strict=True)]

                zeros = [jnp.zeros([_wide(n) for n in ref.shape], jnp.float32) for layer in tower for ref in layer]
                sums = turn(0, zeros) if turns == 1 else jax.lax.fori_loop(0, turns, turn, zeros)
                for value, ref, start in zip(sums, jax.tree.leaves(tower), jax.tree.leaves(place), strict=True):
                    _put(out, block, start, ref.shape, value)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((blocks, starts[-1]), jnp.float32),
        grid=(blocks, len(towers)),
        interpret=shape.interpret,
        compiler_params=_params(WARPS["backward"]),
        name="towers_backward",
    )
    total = jnp.sum(call(x, *leaves, *given), axis=0)
    parts = [total[a:b].reshape(leaf.shape) for a, b, leaf in zip(starts, starts[1:], leaves, strict=False)]
    gradient: tuple[Tower, ...] = jax.tree.unflatten(structure, parts)
    return gradient


def _gradient(shape: Shape, tower: Any, x: Any, delta: Any) -> list[Any]:
    """The gradients of a tower's leaves over a block of rows; ``delta`` is that of its outputs."""
    seen = _through(shape, tower, x)
    found: list[Any] = []
    for k in reversed(range(len(tower))):
        found = [_dot(seen[k], delta, 0, 0), jnp.sum(delta, axis=0), *found]
        if k:
            slope = 1.0 - seen[k] * seen[k] if shape.activation == "tanh" else jnp.where(seen[k] > 0.0, 1.0, 0.0)
            delta = _dot(delta, _weights(tower[k][0]), 1, 1) * slope
    return found


def _through(shape: Shape, tower: Any, x: Any) -> list[Any]:
    """What enters each layer, and last what leaves the last, ``[rows, wide]``; ``tower`` holds references."""
    seen = [x]
    for k, (weights, bias) in enumerate(tower):
        y = _dot(seen[-1], _weights(weights), 1, 0) + _vector(bias)[None, :]
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


def _weights(ref: Any) -> Any:
    return _load(ref, jnp.arange(_wide(ref.shape[0])), ref.shape[0], ref.shape[1])


def _vector(ref: Any) -> Any:
    from jax.experimental.pallas import triton

    across = jnp.arange(_wide(ref.shape[0]))
    return triton.load(ref.at[across], mask=across < ref.shape[0], other=0.0)


def _put(out: Any, block: Any, start: int, shape: tuple[int, ...], value: Any) -> None:
    """A leaf's gradient into a block's row."""
    from jax.experimental.pallas import triton

    if len(shape) == 1:
        across = jnp.arange(value.shape[0])
        triton.store(out.at[block, start + across], value, mask=across < shape[0])
        return
    down, across = jnp.arange(value.shape[0]), jnp.arange(value.shape[1])
    inside = (down[:, None] < shape[0]) & (across[None, :] < shape[1])
    triton.store(out.at[block, start + down[:, None] * shape[1] + across[None, :]], value, mask=inside)


def _params(warps: int) -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=warps)
