"""A scan that writes what each step leaves behind as one array.

``jax.lax.scan`` writes every leaf of a step's record by itself; on a GPU each is a kernel of its own, and with small
batches their launches take longer than the work. Here the small leaves of a record lie side by side in one array of
words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from weft.core.types import Tree

MAX_WORDS = 64
"""Leaves with more elements for each row are written by themselves: their writes are worth a kernel."""


def scan_packed(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]], start: Tree, xs: Tree, length: int
) -> tuple[Tree, Tree]:
    """``jax.lax.scan(step, start, xs, length)`` for records whose leaves all have the same first axis, ``[B, ...]``."""
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    record = jax.eval_shape(lambda carry, x: step(carry, x)[1], start, first)
    schema, structure = jax.tree.flatten(record)

    def packed(carry: Tree, x: Tree) -> tuple[Tree, tuple[list[jax.Array], list[jax.Array]]]:
        carry, record = step(carry, x)
        leaves = jax.tree.leaves(record)
        words = [_to_words(leaf) for leaf, like in zip(leaves, schema, strict=True) if _fits(like)]
        apart = [leaf for leaf, like in zip(leaves, schema, strict=True) if not _fits(like)]
        return carry, ([jnp.concatenate(words, axis=-1)] if words else [], apart)

    end, (words, apart) = jax.lax.scan(packed, start, xs, length)
    leaves, waiting, at = [], iter(apart), 0
    for like in schema:
        if not _fits(like):
            leaves.append(next(waiting))
            continue
        size = _size(like)
        leaves.append(_from_words(words[0][..., at : at + size], like))
        at += size
    return end, jax.tree.unflatten(structure, leaves)


def _fits(like: jax.ShapeDtypeStruct) -> bool:
    if jax.numpy.issubdtype(like.dtype, jax.dtypes.extended):
        return False
    return _size(like) <= MAX_WORDS and (like.dtype == jnp.bool_ or like.dtype.itemsize == 4)


def _size(like: jax.ShapeDtypeStruct) -> int:
    return math.prod(like.shape[1:])


def _to_words(leaf: jax.Array) -> jax.Array:
    """``[B, ...]`` to ``[B, words]`` uint32."""
    words = leaf.astype(jnp.uint32) if leaf.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(leaf, jnp.uint32)
    return words.reshape((leaf.shape[0], -1))


def _from_words(words: jax.Array, like: Any) -> jax.Array:
    """``[T, B, words]`` back to ``[T, B, ...]``."""
    words = words.reshape((words.shape[0], *like.shape))
    return words.astype(jnp.bool_) if like.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(words, like.dtype)
