"""Whether observations are within the Box that an environment declares. What no dtype could exceed is not looked at."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from weft.core.specs import Box, SpaceTree
from weft.core.trees import tree_leaves
from weft.envs.observations import Leaf

NDArray: TypeAlias = np.ndarray[Any, Any]


class BoundsScan:
    """Finds observations outside their Box in ``[B, ...]`` batches; keeps scratch space of that size for each bound."""

    def __init__(self, space: SpaceTree, targets: list[NDArray], leaves: list[Leaf]) -> None:
        boxes = tree_leaves(space)
        self._parts: list[tuple[int, Leaf, Any, Any, NDArray]] = []
        for i, (box, leaf, target) in enumerate(zip(boxes, leaves, targets, strict=True)):
            if isinstance(box, Box):
                low, high = _checked(box)
                if low is not None or high is not None:
                    self._parts.append((i, leaf, low, high, np.empty(target.shape, np.bool_)))

    def inside(self, targets: list[NDArray]) -> bool:
        """Whether all is within its bounds; NaN counts as inside. A microsecond for each bound of a small batch."""
        for i, _, low, high, scratch in self._parts:
            out = scratch if len(scratch) == len(targets[i]) else None  # of some rows alone
            if low is not None and np.count_nonzero(np.less(targets[i], low, out)):
                return False
            if high is not None and np.count_nonzero(np.greater(targets[i], high, out)):
                return False
        return True

    def first(self, targets: list[NDArray]) -> tuple[int, int, str]:
        """The first row that is outside, how many rows are, and that part of the observation in words."""
        rows: set[int] = set()
        found: tuple[int, str] | None = None
        for i, leaf, low, high, _ in self._parts:
            value = targets[i]
            low, high = (-np.inf if low is None else low), (np.inf if high is None else high)
            bad = np.argwhere((value < low) | (value > high))
            rows |= {int(at[0]) for at in bad}
            if len(bad) and found is None:
                place = tuple(int(k) for k in bad[0])
                ends = [np.broadcast_to(bound, value.shape)[place] for bound in (low, high)]
                words = f"observation{leaf.path}{list(place[1:]) or ''} is {value[place]}"
                found = place[0], f"{words}, outside its Box, which goes from {ends[0]} to {ends[1]}"
        assert found is not None, "first() is for batches that are not inside"
        return found[0], len(rows), found[1]


def _checked(box: Box) -> tuple[Any, Any]:
    """The bounds that an array of the Box's dtype could exceed; None for each that it could not."""
    kind = np.dtype(box.dtype)
    if kind.kind == "b":
        return None, None
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    low = None if np.all(np.asarray(box.low) <= limits.min) else np.asarray(box.low, kind)
    high = None if np.all(np.asarray(box.high) >= limits.max) else np.asarray(box.high, kind)
    return low, high
