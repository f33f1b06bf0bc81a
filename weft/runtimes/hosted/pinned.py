"""Host memory that an accelerator reads by itself.

An array that is handed to a program on an accelerator is first copied by the host into memory that the accelerator can
reach, and the call waits for that. Memory that lies there already (*pinned*, in CUDA's words) is read by the program
itself, while the host goes on. JAX gives such memory as arrays; here the host writes into them again and again, so a
program that was handed one must have finished before its memory is written.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from weft.core.types import Tree


class Pinned(NamedTuple):
    """The same memory twice."""

    view: np.ndarray[Any, Any]  # for the host, to write
    array: jax.Array  # for programs, to read


def pinned(shape: tuple[int, ...], dtype: Any, device: Any) -> Pinned:
    """Zeros in host memory that ``device`` reads. The view keeps nothing alive: hold both."""
    array = jax.device_put(np.zeros(shape, dtype), _in(device, "pinned_host"))
    array.block_until_ready()
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.unsafe_buffer_pointer())
    return Pinned(np.ndarray(shape, dtype, memory), array)


def can_pin(device: Any) -> bool:
    """Whether ``device`` is an accelerator that reads such memory."""
    return device.platform != "cpu" and any(memory.kind == "pinned_host" for memory in device.addressable_memories())


def shapes_of_pinned(tree: Tree, device: Any) -> Tree:
    """Shapes, as those of arrays in pinned memory: what a program is compiled for that is handed such arrays."""
    where = _in(device, "pinned_host")
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)


def fetched(tree: Tree, device: Any) -> Tree:
    """Inside a program: arrays in pinned memory, brought to the device's own."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, _in(device, "device")), tree)


def _in(device: Any, kind: str) -> SingleDeviceSharding:
    return SingleDeviceSharding(device, memory_kind=kind)
