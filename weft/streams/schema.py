"""What one message of a channel holds: its arrays, where they lie in a slot, and how two ends agree on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import SchemaMismatch
from weft.core.trees import tree_paths
from weft.core.types import Tree

LINE = 64
"""Bytes of a cache line. Each array, each slot and each owner's words begin on a new line."""


class ArraySpec(NamedTuple):
    """One array of a message: its name, shape and dtype."""

    path: str  # where it is in the tree, "observation.camera"; empty for a bare array
    shape: tuple[int, ...]
    dtype: str  # NumPy's name for it, in the machine's byte order


ArraySpecs = tuple[ArraySpec, ...]
"""All arrays of a message, in the order of ``core.trees.tree_leaves``."""


def array_specs(tree: Tree) -> ArraySpecs:
    """The specs of a tree's leaves, which need only ``shape`` and ``dtype``: NumPy arrays, ``jax.ShapeDtypeStruct``."""
    return tuple(_array_spec(path, value) for path, value in tree_paths(tree))


def _array_spec(path: str, value: Any) -> ArraySpec:
    spec = ArraySpec(path, tuple(int(size) for size in value.shape), str(getattr(value.dtype, "name", value.dtype)))
    if dtype_of(spec) != value.dtype:
        raise SchemaMismatch(f"{_named(spec)}: dtype {value.dtype!r} is not of this machine's byte order")
    return spec


def dtype_of(spec: ArraySpec) -> np.dtype[Any]:
    """The NumPy dtype of an array. Raises SchemaMismatch if its values have no fixed bytes (objects, PRNG keys)."""
    try:
        dtype: np.dtype[Any] = np.dtype(spec.dtype)
    except TypeError:
        dtype = _extended_dtype(spec)
    if dtype.hasobject or (dtype.kind in "SUV" and dtype.itemsize == 0):
        raise SchemaMismatch(f"{_named(spec)}: values of dtype {spec.dtype!r} have no fixed bytes, and cannot be sent")
    return dtype


def _extended_dtype(spec: ArraySpec) -> np.dtype[Any]:
    """bfloat16 and the like, which NumPy knows by name once ml_dtypes is loaded."""
    try:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, spec.dtype))
    except (ImportError, AttributeError, TypeError) as error:
        raise SchemaMismatch(
            f"{_named(spec)}: NumPy knows no dtype {spec.dtype!r}. Send plain numbers (of a PRNG key: its data)."
        ) from error
    return extended


class SlotLayout:
    """Where each array lies in a slot: in order, each at the start of a cache line.

    ``nbytes`` is the size of the whole slot, a multiple of 64.
    """

    def __init__(self, arrays: ArraySpecs) -> None:
        self._places: list[tuple[tuple[int, ...], np.dtype[Any], int]] = []
        self.extents: list[tuple[int, int]] = []  # of each array: where it begins, and its bytes
        offset = 0
        for spec in arrays:
            dtype = dtype_of(spec)
            nbytes = int(np.prod(spec.shape, dtype=np.int64)) * dtype.itemsize
            self._places.append((spec.shape, dtype, offset))
            self.extents.append((offset, nbytes))
            offset += aligned(nbytes)
        self.nbytes = offset

    def views(self, buffer: Any, offset: int = 0) -> list[np.ndarray[Any, Any]]:
        """The arrays of a slot that begins at ``offset`` of ``buffer``, over its memory: no copy."""
        return [np.ndarray(shape, dtype, buffer, offset + place) for shape, dtype, place in self._places]

    def buffer(self) -> Buffer:
        """A slot in memory of its own, aligned as in a channel; contents undefined."""
        memory = np.empty(self.nbytes + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        return Buffer(memory[start : start + self.nbytes], self.views(memory, start))


class Buffer(NamedTuple):
    """A slot's memory, seen twice: as bytes, to be copied in one go, and as the arrays that lie in them."""

    data: np.ndarray[Any, Any]  # [nbytes] uint8
    arrays: list[np.ndarray[Any, Any]]


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to whole cache lines."""
    return -(-nbytes // LINE) * LINE


@lru_cache(64)
def slot_layout(arrays: ArraySpecs) -> SlotLayout:
    """Where the arrays of a message lie: one for all channels with the same arrays, of which there may be thousands."""
    return SlotLayout(arrays)


@lru_cache(64)
def array_specs_to_json(specs: ArraySpecs) -> str:
    """The specs as compact JSON; ``array_specs_from_json`` reads it."""
    return json.dumps(specs, separators=(",", ":"))


def array_specs_from_json(text: str | Sequence[Any]) -> ArraySpecs:
    """The specs that ``array_specs_to_json`` wrote, from the text or from the lists that JSON made of it."""
    parsed: Sequence[Any] = json.loads(text) if isinstance(text, str) else text
    return tuple(ArraySpec(str(path), tuple(int(n) for n in shape), str(dtype)) for path, shape, dtype in parsed)


@lru_cache(64)
def fingerprint(specs: ArraySpecs) -> str:
    """32 hexadecimal digits, equal on every machine where the specs are equal: two ends compare them on connecting."""
    return hashlib.blake2b(array_specs_to_json(specs).encode(), digest_size=16).hexdigest()


def difference(expected: ArraySpecs, found: ArraySpecs) -> str:
    """The first difference in words; empty if there is none."""
    for mine, theirs in zip(expected, found, strict=False):
        if mine.path != theirs.path:
            return f"expected {_named(mine)} where {_named(theirs)} came"
        if mine.shape != theirs.shape:
            return f"{_named(mine)}: expected shape {mine.shape}, and {theirs.shape} came"
        if mine.dtype != theirs.dtype:
            return f"{_named(mine)}: expected dtype {mine.dtype}, and {theirs.dtype} came"
    if len(expected) > len(found):
        return f"{_named(expected[len(found)])} is missing: {len(found)} arrays came, {len(expected)} were expected"
    if len(expected) < len(found):
        return f"{_named(found[len(expected)])} is too much: {len(found)} arrays came, {len(expected)} were expected"
    return ""


def check(arrays: Sequence[np.ndarray[Any, Any]], specs: ArraySpecs, where: str) -> None:
    """Refuse arrays that are not exactly as ``specs`` says; ``where`` names the channel in the message."""
    if len(arrays) == len(specs) and all(
        array.shape == spec.shape and array.dtype.name == spec.dtype for array, spec in zip(arrays, specs, strict=True)
    ):
        return
    found = tuple(
        ArraySpec(specs[i].path if i < len(specs) else f"number {i}", tuple(np.shape(a)), np.asarray(a).dtype.name)
        for i, a in enumerate(arrays)
    )
    raise SchemaMismatch(f"{where}: {difference(specs, found)}. Send the arrays in the order of the channel's schema.")


def _named(spec: ArraySpec) -> str:
    return f"array {spec.path!r}" if spec.path else "the array"
