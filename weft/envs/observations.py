"""Writing an environment's observations into preallocated arrays, checked against its space on the way.

The same writer serves one environment (``leading=()``, a row at a time) and a native batch (``leading=(B,)``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.specs import Shape
from weft.core.trees import tree_leaves
from weft.envs.spaces import NARROWED, is_text

NDArray: TypeAlias = np.ndarray[Any, Any]

LARGEST = float(np.finfo(np.float32).max)
"""What a reward may be at most: they are kept as float32."""

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2}  # a dtype may be written into one of the same or a higher rank


class Misfit(ValueError):
    """An observation that disagrees with its space: where in the space, what came, what was expected."""


def is_flag(value: Any) -> bool:
    """Whether a value can be taken as True or False: a bool, or an integer, of Python or NumPy; no text, no float."""
    return bool(np.shape(value) == () and np.asarray(value).dtype.kind in "biu")


def shorten(value: Any) -> str:
    """A value of the user's in a message: its repr, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out an integer of more than 4,300 digits
        text = f"an integer of {value.bit_length()} bits"
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


@dataclass(frozen=True)
class Leaf:
    """One array of the observation space: how the environment gives it, and how the spec has it."""

    path: str  # "" for a bare array, "['camera']" within a Dict
    space: str  # Gymnasium's name for it, for messages
    given: Shape  # with any leading axes
    shape: Shape  # the same number of elements, as the spec has them
    dtype: np.dtype[Any]  # as the environment gives it
    start: Any = None  # subtracted: the first value of a Discrete or MultiDiscrete
    count: Any = None  # how many values there are, where that is known
    direct: bool = False  # an array of ``given`` shape and ``dtype`` can be assigned as it is
    kept: np.dtype[Any] | None = None  # where that is narrower than an integer ``dtype``: what the spec has

    def convert(self, value: Any) -> NDArray:
        """``value`` with the spec's shape and range; raises Misfit where it disagrees with the space."""
        if type(value) is int and self.count is not None and not self.given and 0 <= value - self.start < self.count:
            return value - self.start  # type: ignore[no-any-return]  # the usual Discrete, 20 times faster than below
        if type(value) is np.ndarray and self.direct and value.dtype == self.dtype and value.shape == self.given:
            return value
        try:
            array = np.asarray(value)
        except ValueError as error:  # ragged lists
            raise self._misfit(f"a {type(value).__name__} that is not an array ({error})") from None
        if array.shape != self.given:
            raise self._misfit(f"shape {list(array.shape)} {array.dtype}")
        rank, wanted = _RANK.get(array.dtype.kind, 3), _RANK.get(self.dtype.kind, 2)
        # Python's numbers and lists are taken by their values; an array says what it is.
        if rank > wanted or (rank < wanted and type(value) is np.ndarray):
            raise self._misfit(f"dtype {array.dtype}")
        if self.count is not None:
            array = array.astype(np.int64) - self.start
            if ((array < 0) | (array >= self.count)).any():
                raise self._misfit(f"a value out of range ({np.asarray(value).tolist()})")
        elif self.dtype.kind in "iu" and array.dtype != self.dtype and (array.astype(self.dtype) != array).any():
            raise self._misfit(f"dtype {array.dtype} with values that {self.dtype} cannot hold")
        if self.kept is not None and array.size:
            limits = np.iinfo(self.kept)
            low, high = int(array.min()), int(array.max())
            if low < limits.min or high > limits.max:
                wide = low if low < limits.min else high
                raise self._misfit(f"{self.dtype} with the value {wide}, and JAX holds {self.kept} at most")
        return array.reshape(self.shape)

    def _misfit(self, came: str) -> Misfit:
        return Misfit(f"observation{self.path} came as {came}, but the space says {self.space}")


Node: TypeAlias = "Leaf | dict[str, Node] | tuple[Node, ...] | None"
"""None: left out."""


def leaves_of(buffers: Any) -> list[NDArray]:
    """``tree_leaves``, without its microsecond for a single array."""
    return [buffers] if type(buffers) is np.ndarray else tree_leaves(buffers)


class ObservationWriter:
    """Writes observations of one space; ``leaves`` are in the order of ``tree_leaves`` of its buffers."""

    def __init__(self, space: gym.Space[Any], leading: Shape = ()) -> None:
        self._tree = _node(space, leading, "")
        self.leaves: list[Leaf] = tree_leaves(self._tree)
        self._only = self._tree if isinstance(self._tree, Leaf) else None

    @property
    def plain(self) -> Leaf | None:
        """The leaf, where the space is a single array that can be assigned as it comes."""
        return self._only if self._only is not None and self._only.direct else None

    def values(self, observation: Any) -> list[Any]:
        """The parts of an observation, in the order of ``leaves``; raises Misfit where the structure disagrees."""
        found: list[Any] = []
        _gather(self._tree, observation, "", found)
        return found

    def write_row(self, targets: list[NDArray], row: int, observation: Any) -> None:
        """Write one environment's observation into row ``row`` of ``targets`` (one array for each leaf)."""
        if self._only is not None:
            targets[0][row] = self._only.convert(observation)
            return
        for leaf, target, value in zip(self.leaves, targets, self.values(observation), strict=True):
            target[row] = leaf.convert(value)

    def write_batch(self, targets: list[NDArray], observation: Any, rows: NDArray | None = None) -> None:
        """Write a whole batch's observation, or only the ``rows`` of it (``[B]`` bool)."""
        for leaf, target, value in zip(self.leaves, targets, self.values(observation), strict=True):
            if rows is None:
                target[...] = leaf.convert(value)
            else:
                target[rows] = leaf.convert(value)[rows]

    def digest(self, observation: Any) -> int:
        """32 bits that tell this observation from others."""
        crc = 0
        for value in self.values(observation):
            crc = zlib.crc32(np.ascontiguousarray(value).tobytes(), crc)
        return crc


def _node(space: gym.Space[Any], leading: Shape, path: str) -> Node:
    match space:
        case gym.spaces.Dict():
            children = sorted(space.spaces.items())
            return {k: None if is_text(s) else _node(s, leading, f"{path}[{k!r}]") for k, s in children}
        case gym.spaces.Tuple():
            return tuple(_node(s, leading, f"{path}[{i}]") for i, s in enumerate(space.spaces))
    given = leading + tuple(space.shape or ())
    dtype = np.dtype(space.dtype)
    match space:
        case gym.spaces.Discrete():
            return Leaf(path, str(space), given, given, dtype, int(space.start), int(space.n))
        case gym.spaces.MultiDiscrete():
            return Leaf(path, str(space), given, (*leading, space.nvec.size), dtype, space.start, space.nvec)
        case gym.spaces.MultiBinary():
            return Leaf(path, str(space), given, (*leading, int(np.prod(space.shape))), dtype, 0, 2)
    kept = NARROWED.get(dtype.name)
    words = f"Box{list(space.shape or ())} {dtype}"
    return Leaf(path, words, given, given, dtype, direct=kept is None, kept=None if kept is None else np.dtype(kept))


def _gather(node: Node, value: Any, path: str, found: list[Any]) -> None:
    if node is None:
        return
    if isinstance(node, Leaf):
        found.append(value)
    elif isinstance(node, dict):
        if not isinstance(value, Mapping) or value.keys() != node.keys():
            came = f"keys {sorted(map(str, value))}" if isinstance(value, Mapping) else type(value).__name__
            raise Misfit(f"observation{path} came as {came}, but the space says a Dict of {sorted(node)}")
        for key, child in node.items():
            _gather(child, value[key], f"{path}[{key!r}]", found)
    else:
        if not isinstance(value, tuple | list) or len(value) != len(node):
            came = f"{len(value)} parts" if isinstance(value, tuple | list) else type(value).__name__
            raise Misfit(f"observation{path} came as {came}, but the space says a Tuple of {len(node)}")
        for i, child in enumerate(node):
            _gather(child, value[i], f"{path}[{i}]", found)
