"""A pytree as named host arrays, and back: what checkpoints store and digests cover.

A leaf's name is its path in the tree as JAX writes it (``['params'].bias[0]``), so that it does not depend on the
order in which dicts were filled. PRNG keys are stored as their words, and Python numbers as arrays of no axes; a
template says what they were. Bytes are little-endian.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import numpy.typing as npt

from weft.core.errors import CheckpointError
from weft.core.types import Tree


@dataclass(frozen=True)
class Leaf:
    """One leaf of a tree: what it is called and looks like, and how to get at it. Nothing is copied until asked."""

    path: str
    value: Any  # an array, a PRNG key array, a Python number, or a jax.ShapeDtypeStruct
    dtype: str  # "float32", "bfloat16", "key<fry>"
    shape: tuple[int, ...]

    @property
    def is_key(self) -> bool:
        """Whether it is an array of PRNG keys."""
        return _is_key(self.value)

    @property
    def stored(self) -> tuple[npt.DTypeLike, tuple[int, ...]]:
        """The dtype and shape of the array that is stored for it: for keys, their words."""
        if self.is_key:
            words = jax.eval_shape(jax.random.key_data, self.value)
            return np.dtype(words.dtype), words.shape
        return np.dtype(self.dtype_of_array()).newbyteorder("<"), self.shape

    @property
    def nbytes(self) -> int:
        """How many bytes ``data`` has."""
        dtype, shape = self.stored
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    @property
    def key_impl(self) -> str | None:
        """The name of the generator that the keys are for; None for anything else."""
        if not self.is_key:
            return None
        impl = jax.random.key_impl(self.value)
        if not isinstance(impl, str):
            raise CheckpointError(
                f"at {self.path}: keys of the generator {impl!r} cannot be saved: it has no name to find it by "
                "again. Register it under one, or use a generator of JAX (threefry2x32, rbg)."
            )
        return impl

    def dtype_of_array(self) -> npt.DTypeLike:
        """The NumPy dtype of a leaf that is not a key."""
        return np.dtype(self.value.dtype) if hasattr(self.value, "dtype") else np.asarray(self.value).dtype

    def data(self) -> memoryview:
        """Its bytes, row by row and little-endian; waits for the device, and copies only where it must."""
        words = jax.random.key_data(self.value) if self.is_key else self.value
        dtype, _ = self.stored
        array = np.ascontiguousarray(np.asarray(words), dtype)
        return array.reshape(-1).view(np.uint8).data

    def rebuild(self, data: npt.NDArray[np.uint8], impl: str | None) -> Any:
        """Make a value of the template ``self``'s kind from stored bytes, which the value then owns.

        NumPy stays NumPy, a Python number a Python number; JAX arrays (and shapes alone) become JAX arrays, where the
        template's array is if that was chosen, else on the default device.
        """
        dtype, shape = self.stored
        array = data.view(dtype).reshape(shape)
        if isinstance(self.value, bool | int | float | complex):
            return type(self.value)(array.item())
        if isinstance(self.value, np.ndarray):
            return array
        if isinstance(self.value, np.generic):
            return array[()]
        # A copy, never a view of our memory: the program that runs next may donate it.
        device_array = jnp.array(array, copy=True)
        if self.is_key:
            device_array = jax.random.wrap_key_data(device_array, impl=impl)
        if isinstance(self.value, jax.Array) and self.value.committed:
            device_array = jax.device_put(device_array, self.value.sharding)
        return device_array

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def leaves(tree: Tree) -> list[Leaf]:
    """The leaves of a tree, sorted by path; CheckpointError for one that has no plain bytes (an object, a string)."""
    return sorted(_walk(tree), key=lambda leaf: leaf.path)


def params_sha256(tree: Tree) -> str:
    """The SHA-256 of a tree of arrays, in hex: of every path, dtype, shape and byte, whatever the order of its dicts.

    Equal for JAX and NumPy arrays of equal content. Waits for the device.
    """
    digest = hashlib.sha256()
    for leaf in leaves(tree):
        head = msgspec.json.encode([leaf.path, leaf.dtype, leaf.shape])
        digest.update(len(head).to_bytes(8, "little") + head)
        digest.update(leaf.data())
    return digest.hexdigest()


def _walk(tree: Tree) -> Iterator[Leaf]:
    for key_path, value in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = jax.tree_util.keystr(key_path)
        if _is_key(value):
            yield Leaf(path, value, str(value.dtype), tuple(value.shape))
            continue
        shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        leaf = Leaf(path, value, "", shape)
        dtype = np.dtype(leaf.dtype_of_array())
        # User-defined dtypes are those of ml_dtypes (bfloat16, float8, int4): plain bytes, which NumPy calls void.
        if dtype.hasobject or not (dtype.kind in "biufc" or dtype.isbuiltin == 2):
            raise CheckpointError(
                f"at {path or 'the root'}: a {type(value).__name__} of dtype {dtype} cannot be saved, only numbers. "
                "Put text and settings into the document instead."
            )
        yield Leaf(path, value, dtype.name, shape)


def _is_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
