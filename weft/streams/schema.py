"""What one message of a channel holds: its leaves, where they lie in a slot, and how two ends agree on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import SchemaMismatch
from weft.core.trees import tree_paths
from weft.core.types import Tree

LINE = 64
"""Bytes of a cache line: leaves, slots and the words of different owners begin on one of their own."""


class Leaf(NamedTuple):
    """One array of a message."""

    path: str  # where it is in the tree, "observation.camera"; empty for a bare array
    shape: tuple[int, ...]
    dtype: str  # NumPy's name for it, in the machine's byte order


Leaves = tuple[Leaf, ...]
"""All arrays of a message, in the order of ``core.trees.tree_leaves``."""


def leaves_of(tree: Tree) -> Leaves:
    """The leaves of a tree of anything with ``shape`` and ``dtype``: NumPy arrays, ``jax.ShapeDtypeStruct``."""
    return tuple(_leaf(path, value) for path, value in tree_paths(tree))


def _leaf(path: str, value: Any) -> Leaf:
    leaf = Leaf(path, tuple(int(size) for size in value.shape), str(getattr(value.dtype, "name", value.dtype)))
    if dtype_of(leaf) != value.dtype:
        raise SchemaMismatch(f"{_named(leaf)}: dtype {value.dtype!r} is not of this machine's byte order")
    return leaf


def dtype_of(leaf: Leaf) -> np.dtype[Any]:
    """The NumPy dtype of a leaf; refuses what has no fixed bytes (objects, PRNG keys)."""
    try:
        dtype: np.dtype[Any] = np.dtype(leaf.dtype)
    except TypeError:
        dtype = _extended_dtype(leaf)
    if dtype.hasobject or (dtype.kind in "SUV" and dtype.itemsize == 0):
        raise SchemaMismatch(f"{_named(leaf)}: arrays of dtype {leaf.dtype!r} have no fixed bytes, and cannot be sent")
    return dtype


def _extended_dtype(leaf: Leaf) -> np.dtype[Any]:
    """bfloat16 and its kin, which NumPy knows by name once ml_dtypes is loaded."""
    try:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, leaf.dtype))
    except (ImportError, AttributeError, TypeError) as error:
        raise SchemaMismatch(
            f"{_named(leaf)}: NumPy knows no dtype {leaf.dtype!r}. Send plain numbers (of a PRNG key: its data)."
        ) from error
    return extended


class SlotLayout:
    """Where each leaf lies in a slot: in order, each beginning on a cache line.

    ``nbytes`` is the whole slot's size, a multiple of 64.
    """

    def __init__(self, leaves: Leaves) -> None:
        self._places: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        offset = 0
        for leaf in leaves:
            dtype = dtype_of(leaf)
            self._places.append((leaf.shape, dtype, offset))
            offset += aligned(int(np.prod(leaf.shape, dtype=np.int64)) * dtype.itemsize)
        self.nbytes = offset

    def views(self, buffer: Any, offset: int = 0) -> list[np.ndarray[Any, Any]]:
        """The leaves of a slot that begins at ``offset`` of ``buffer``, as arrays over its memory: no copy."""
        return [np.ndarray(shape, dtype, buffer, offset + place) for shape, dtype, place in self._places]

    def buffer(self) -> Buffer:
        """A slot of its own memory, aligned as in a channel; contents undefined."""
        block = np.empty(self.nbytes + LINE, np.uint8)
        start = -block.ctypes.data % LINE
        return Buffer(block[start : start + self.nbytes], self.views(block, start))


class Buffer(NamedTuple):
    """A slot's memory, seen twice: as bytes, to be copied in one go, and as the leaves that lie in them."""

    block: np.ndarray[Any, Any]  # [nbytes] uint8
    arrays: list[np.ndarray[Any, Any]]


def aligned(nbytes: int) -> int:
    """The next multiple of a cache line."""
    return -(-nbytes // LINE) * LINE


def leaves_json(leaves: Leaves) -> str:
    """The leaves as compact JSON; ``leaves_from_json`` reads it."""
    return json.dumps(leaves, separators=(",", ":"))


def leaves_from_json(text: str | Sequence[Any]) -> Leaves:
    """The leaves that ``leaves_json`` wrote, from the text or from what JSON made of it."""
    parsed: Sequence[Any] = json.loads(text) if isinstance(text, str) else text
    return tuple(Leaf(str(path), tuple(int(n) for n in shape), str(dtype)) for path, shape, dtype in parsed)


def fingerprint(leaves: Leaves) -> str:
    """32 hexadecimal digits that are equal where the leaves are, on every machine: for agreeing at connection."""
    return hashlib.blake2b(leaves_json(leaves).encode(), digest_size=16).hexdigest()


def difference(expected: Leaves, found: Leaves) -> str:
    """The first difference in words, from the side of who expects; empty where there is none."""
    for mine, theirs in zip(expected, found, strict=False):
        if mine.path != theirs.path:
            return f"expected {_named(mine)} where {_named(theirs)} came"
        if mine.shape != theirs.shape:
            return f"{_named(mine)}: expected shape {mine.shape}, and {theirs.shape} came"
        if mine.dtype != theirs.dtype:
            return f"{_named(mine)}: expected dtype {mine.dtype}, and {theirs.dtype} came"
    if len(expected) > len(found):
        return f"{_named(expected[len(found)])} is missing: {len(found)} leaves came, {len(expected)} were expected"
    if len(expected) < len(found):
        return f"{_named(found[len(expected)])} is too much: {len(found)} leaves came, {len(expected)} were expected"
    return ""


def check(arrays: Sequence[np.ndarray[Any, Any]], leaves: Leaves, where: str) -> None:
    """Refuse arrays that are not exactly of ``leaves``; ``where`` names the channel in the message."""
    if len(arrays) == len(leaves) and all(
        array.shape == leaf.shape and array.dtype.name == leaf.dtype for array, leaf in zip(arrays, leaves, strict=True)
    ):
        return
    found = tuple(
        Leaf(leaves[i].path if i < len(leaves) else f"leaf {i}", tuple(np.shape(a)), np.asarray(a).dtype.name)
        for i, a in enumerate(arrays)
    )
    raise SchemaMismatch(f"{where}: {difference(leaves, found)}. Send the leaves in the order of the channel's schema.")


def _named(leaf: Leaf) -> str:
    return f"leaf {leaf.path!r}" if leaf.path else "the array"
