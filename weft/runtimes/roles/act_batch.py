"""The inputs of an inference call, gathered from the lanes that are in it into memory that is used again and again."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.types import Tree
from weft.runtimes.hosted.pinned import pinned
from weft.runtimes.roles.act_lane import LaneState, State


class Room:
    """Room for the inputs of ``size`` lanes, as one of them has them. What is not filled stays as it was.

    A new array for each call would be new memory for each call, which the kernel hands out page by page; that takes
    longer than to copy what goes into it. ``pins``: the device that reads the memory by itself; None: it is handed it.
    """

    def __init__(
        self, size: int, rows: int, seen: tuple[Any, ...], noise: Tree, carry: Tree, pins: Any | None = None
    ) -> None:
        likes, structure = jax.tree.flatten((seen, noise, carry))
        shapes = [(size * like.shape[0], *like.shape[1:]) for like in likes]
        handed: list[Any] = []  # what a program is given, and what is written here: the same memory
        whole: list[np.ndarray[Any, Any]] = []
        for shape, like in zip(shapes, likes, strict=True):
            if pins is None:
                whole.append(_aligned(shape, like.dtype))
                handed.append(whole[-1])
            else:
                memory = pinned(shape, like.dtype, pins)
                whole.append(memory.view)
                handed.append(memory.array)
        self.seen, self.noise, self.carry = jax.tree.unflatten(structure, handed)
        self._places = [[leaf[j * rows : (j + 1) * rows] for leaf in whole] for j in range(size)]
        self._seen = len(seen)

    def fill(self, j: int, seen: tuple[Any, ...], noise: list[Any], carry: list[Any], *, copy_seen: bool) -> None:
        """Put a lane's inputs into place j; without ``copy_seen``, all but what act sees."""
        places = self._places[j]
        if copy_seen:
            for place, leaf in zip(places, seen, strict=False):
                np.copyto(place, leaf)
        for place, leaf in zip(places[self._seen :], [*noise, *carry], strict=True):
            np.copyto(place, leaf)


def sizes_for(lanes: int, whole: bool, accelerator: bool) -> list[int]:
    """The sizes, in lanes, that batches are padded to: few, since each is a program.

    An accelerator takes half a minute to compile one and hardly notices what is padded; a CPU computes all of it.
    """
    if whole:
        return [lanes]
    if accelerator:
        return sorted({max(1, -(-lanes // part)) for part in (4, 2, 1)})
    return [n for n in (2**k for k in range(16)) if n < lanes] + [lanes]


class Pending(NamedTuple):
    """A batch on its way through the device."""

    work: list[tuple[LaneState, State]]  # the lanes in it, and what for
    size: int  # in lanes, with padding
    room: Room
    gave: Tree  # what act gave, wherever it is by now

    def done(self) -> bool:
        """Whether the device has finished."""
        return all(leaf.is_ready() for leaf in jax.tree.leaves(self.gave))


def _aligned(shape: tuple[int, ...], like: Any) -> np.ndarray[Any, Any]:
    """Zeros on a cache line: a CPU device uses them where they lie."""
    dtype = np.dtype(like)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    several: np.ndarray[Any, Any] = memory[start : start + nbytes].view(dtype).reshape(shape)
    return several
