"""Records whose small leaves lie side by side in one array of words.

``jax.lax.scan`` writes every leaf of a step's record by itself; on a GPU each is a kernel of its own, and with small
batches their launches take longer than the work. And whoever fetches a record to the host fetches every leaf by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Tree
from weft.ops.in_a_row import in_a_row

MAX_WORDS = 64
"""Leaves with more elements for each row are written by themselves: their writes are worth a kernel."""
FEW_OPERATIONS = 1_000
"""Operations of a step that may be compiled several times. With PPO a step in CartPole has 118, in Acrobot 298."""


def scan_packed(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]], start: Tree, xs: Tree, length: int, most_in_a_row: int = 1
) -> tuple[Tree, Tree]:
    """``jax.lax.scan(step, start, xs, length)`` for records whose leaves all have the same first axis, ``[B, ...]``.

    On an accelerator up to ``most_in_a_row`` steps are one turn of the loop (``in_a_row``), where a step is little to
    compile: it is compiled as often.
    """
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    record = jax.eval_shape(lambda carry, x: step(carry, x)[1], start, first)

    def packed(carry: Tree, x: Tree) -> tuple[Tree, tuple[list[jax.Array], list[jax.Array]]]:
        carry, record = step(carry, x)
        return carry, pack(record)

    together = in_a_row(length, most_in_a_row)
    if together > 1 and _operations(jax.make_jaxpr(step)(start, first).jaxpr) > FEW_OPERATIONS:
        together = 1
    end, written = jax.lax.scan(packed, start, xs, length, unroll=together)
    return end, unpack(written, record)


def pack(record: Tree) -> tuple[list[jax.Array], list[jax.Array]]:
    """``[B, words]`` uint32 of all small leaves of a record, which are ``[B, ...]``, if any; and those apart."""
    leaves = jax.tree.leaves(record)
    words = [_to_words(leaf) for leaf in leaves if _fits(leaf)]
    return [jnp.concatenate(words, axis=-1)] if words else [], [leaf for leaf in leaves if not _fits(leaf)]


def unpack(written: tuple[list[jax.Array], list[jax.Array]], record: Tree) -> Tree:
    """What was written of records that ``pack`` was given, ``[T, ...]`` of each, as they were; ``record``: one."""
    schema, structure = jax.tree.flatten(record)
    leaves, apart, at = [], iter(written[1]), 0
    for like in schema:
        if not _fits(like):
            leaves.append(next(apart))
            continue
        size = _size(like)
        leaves.append(_from_words(written[0][0][..., at : at + size], like))
        at += size
    return jax.tree.unflatten(structure, leaves)


def unpack_on_host(packed: tuple[list[Any], list[Any]], schema: Tree) -> Tree:
    """The record that ``pack`` was given, as NumPy; ``schema`` is of any number of rows. Waits for the device."""
    likes, structure = jax.tree.flatten(schema)
    words, apart = [np.asarray(x) for x in packed[0]], iter(packed[1])
    leaves, at = [], 0
    for like in likes:
        if not _fits(like):
            leaves.append(np.asarray(next(apart)))
            continue
        mine = words[0][:, at : at + _size(like)]
        at += _size(like)
        whole = mine.astype(np.bool_) if like.dtype == np.bool_ else mine.view(like.dtype)
        leaves.append(whole.reshape(len(mine), *like.shape[1:]))
    return jax.tree.unflatten(structure, leaves)


def _fits(like: Any) -> bool:
    if jax.numpy.issubdtype(like.dtype, jax.dtypes.extended):
        return False
    return _size(like) <= MAX_WORDS and (like.dtype == jnp.bool_ or like.dtype.itemsize == 4)


def _size(like: Any) -> int:
    return math.prod(like.shape[1:])


def _to_words(leaf: jax.Array) -> jax.Array:
    """``[B, ...]`` to ``[B, words]`` uint32."""
    words = leaf.astype(jnp.uint32) if leaf.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(leaf, jnp.uint32)
    return words.reshape((leaf.shape[0], -1))


def _from_words(words: jax.Array, like: Any) -> jax.Array:
    """``[T, B, words]`` back to ``[T, B, ...]``."""
    words = words.reshape((words.shape[0], *like.shape))
    return words.astype(jnp.bool_) if like.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(words, like.dtype)


def _operations(jaxpr: Any) -> int:
    """The operations of a program, those of programs within it too."""
    inner = [
        part.jaxpr if hasattr(part, "jaxpr") else part
        for equation in jaxpr.eqns
        for value in equation.params.values()
        for part in (value if isinstance(value, list | tuple) else [value])
        if hasattr(part, "eqns") or hasattr(getattr(part, "jaxpr", None), "eqns")
    ]
    return len(jaxpr.eqns) + sum(map(_operations, inner))
