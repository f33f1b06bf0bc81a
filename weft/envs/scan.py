"""Whether a batch of observations is finite and, where that is asked, within the Box that an environment declares.

Both are asked in one pass, on every step: a bound that is infinite becomes the largest finite number, which nothing but
infinity exceeds, and a NaN compares as outside. What was wrong is found out only after something was.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.core.specs import Box, SpaceTree
from weft.core.trees import tree_leaves
from weft.envs.observations import Leaf

NDArray: TypeAlias = np.ndarray[Any, Any]

SPREAD = 1 << 16
"""Bounds of batches up to so many bytes are kept at the batch's full shape, which NumPy compares faster."""


class _Part(NamedTuple):
    """One leaf that is looked at: bounds (None where its dtype cannot exceed them), and room for the answers."""

    at: int
    leaf: Leaf
    low: NDArray | None
    high: NDArray | None
    answers: NDArray  # bool, one for each comparison and value
    below: NDArray | None  # views of them
    above: NDArray | None
    finite: NDArray | None  # where there is no bound at all


class ValueScan:
    """Finds NaN, infinity and, given a ``space``, what is outside it, in ``[B, ...]`` batches like ``targets``."""

    def __init__(self, targets: list[NDArray], leaves: list[Leaf], space: SpaceTree | None = None) -> None:
        boxes: list[Any] = [None] * len(targets) if space is None else tree_leaves(space)
        parts = [
            _part(i, leaf, target, box)
            for i, (leaf, target, box) in enumerate(zip(leaves, targets, boxes, strict=True))
        ]
        self._parts = [part for part in parts if part is not None]

    def clean(self, targets: list[NDArray]) -> bool:
        """Whether all is finite and inside. Costs one to two microseconds for a small batch."""
        for i, _, low, high, answers, below, above, finite in self._parts:
            if finite is not None:
                np.isfinite(targets[i], finite)
            if low is not None:
                np.less_equal(low, targets[i], below)
            if high is not None:
                np.less_equal(targets[i], high, above)
            if np.count_nonzero(answers) != answers.size:
                return False
        return True

    def not_finite(self, targets: list[NDArray]) -> tuple[int, str] | None:
        """The first row with a value that is not finite, and that part of the observation in words."""
        for part in self._parts:
            value = targets[part.at]
            if value.dtype.kind != "f":
                continue
            bad = np.argwhere(~np.isfinite(value))
            if len(bad):
                row, place = int(bad[0][0]), [int(k) for k in bad[0][1:]]
                return row, f"observation{part.leaf.path}{place if place else ''} is {value[tuple(bad[0])]}"
        return None

    def outside(self, targets: list[NDArray]) -> tuple[int, int, str]:
        """The first row outside its Box, how many are, and that in words; for batches that are finite, not clean."""
        rows: set[int] = set()
        found: tuple[int, str] | None = None
        for part in self._parts:
            value = targets[part.at]
            low, high = (-np.inf if part.low is None else part.low), (np.inf if part.high is None else part.high)
            bad = np.argwhere((value < low) | (value > high))
            rows |= {int(at[0]) for at in bad}
            if len(bad) and found is None:
                place = tuple(int(k) for k in bad[0])
                ends = [_end(np.broadcast_to(bound, value.shape)[place]) for bound in (low, high)]
                words = f"observation{part.leaf.path}{list(place[1:]) or ''} is {value[place]}"
                found = place[0], f"{words}, outside its Box, which goes from {ends[0]} to {ends[1]}"
        assert found is not None, "outside() is for batches that are not clean"
        return found[0], len(rows), found[1]


def _part(index: int, leaf: Leaf, target: NDArray, box: Any) -> _Part | None:
    low, high = _checked(box, target) if isinstance(box, Box) else (None, None)
    if low is None and high is None:
        if target.dtype.kind != "f":
            return None
        finite = np.empty(target.shape, np.bool_)
        return _Part(index, leaf, None, None, finite, None, None, finite)
    answers = np.empty(((low is not None) + (high is not None), *target.shape), np.bool_)
    below, above = (None if low is None else answers[0]), (None if high is None else answers[-1])
    return _Part(index, leaf, low, high, answers, below, above, None)


def _checked(box: Box, target: NDArray) -> tuple[NDArray | None, NDArray | None]:
    """The bounds that an array of the Box's dtype could exceed; None for each that it could not."""
    kind = target.dtype
    if kind.kind == "b":
        return None, None
    limits: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    low, high = np.asarray(box.low), np.asarray(box.high)
    free = bool(np.all(low <= limits.min)), bool(np.all(high >= limits.max))
    if all(free):
        return None, None
    ends = np.clip(low, limits.min, limits.max).astype(kind), np.clip(high, limits.min, limits.max).astype(kind)
    if target.nbytes <= SPREAD:
        ends = np.broadcast_to(ends[0], target.shape).copy(), np.broadcast_to(ends[1], target.shape).copy()
    if kind.kind == "f":  # both, so that what is not finite fails one of them
        return ends
    return (None if free[0] else ends[0]), (None if free[1] else ends[1])


def _end(bound: Any) -> Any:
    """A bound as it was declared: infinite where only finite numbers were asked for."""
    if np.asarray(bound).dtype.kind == "f" and abs(bound) == np.finfo(np.asarray(bound).dtype).max:
        return np.copysign(np.inf, bound)
    return bound
