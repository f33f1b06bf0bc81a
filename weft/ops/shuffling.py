"""A fast random permutation, and passes over shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from weft.core.types import Tree
from weft.ops.in_a_row import in_a_row

State = TypeVar("State")
Gave = TypeVar("Gave")
LARGE_ROW_BYTES = 1024
"""Bytes of a row that are copied once, and not shuffled first and cut later."""


def random_order(key: jax.Array, size: int) -> jax.Array:
    """The numbers below ``size`` in random order, ``[size]`` int32; above 2**24 by ``jax.random.permutation``.

    Each number is the low bits of a word whose high bits are random, and the words are sorted. That is one sort of one
    array, where ``jax.random.permutation`` sorts pairs, twice. Numbers whose high bits are equal stay in order. That
    can only matter at the edge between two minibatches: elsewhere such numbers fall into the same one.
    """
    if size > 2**24:
        return jnp.asarray(jax.random.permutation(key, size))
    low = jnp.uint32((1 << max(size - 1, 1).bit_length()) - 1)
    words = (jax.random.bits(key, (size,), jnp.uint32) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return jnp.asarray(jnp.sort(words) & low, jnp.int32)


def over_minibatches(
    step: Callable[[State, Tree], tuple[State, Gave]], state: State, samples: Tree, key: jax.Array, count: int
) -> tuple[State, Gave]:
    """``jax.lax.scan`` of ``step`` over ``count`` minibatches of ``samples`` (``[N, ...]``) in random order.

    Small arrays are shuffled all at once, which takes few operations; of large ones, such as images, each minibatch is
    picked when its turn has come.
    """
    leaves, structure = jax.tree.flatten(samples)
    order = random_order(key, leaves[0].shape[0])

    def cut(x: jax.Array) -> jax.Array:
        return x.reshape((count, -1, *x.shape[1:]))

    large = [x.size // x.shape[0] * x.dtype.itemsize >= LARGE_ROW_BYTES for x in leaves]
    picked = [cut(order if is_large else x[order]) for x, is_large in zip(leaves, large, strict=True)]

    def one(state: State, rows: list[jax.Array]) -> tuple[State, Gave]:
        parts = [x[now] if is_large else now for x, now, is_large in zip(leaves, rows, large, strict=True)]
        return step(state, jax.tree.unflatten(structure, parts))

    return jax.lax.scan(one, state, picked, unroll=1 if any(large) else in_a_row(count, 2))
