"""Action masks: which choices an environment allows now, from ``info["action_mask"]`` into a row of booleans."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from weft.core.specs import MultiBinary, MultiDiscrete, Space
from weft.envs.observations import Misfit

NDArray: TypeAlias = np.ndarray[Any, Any]

KEY = "action_mask"


class AllowsNothing(Misfit):
    """A mask under which no action can be taken: it allows nothing, at all or in one of its dimensions."""

    def __init__(self, row: NDArray, starts: NDArray | None) -> None:
        where = "no action at all"
        if starts is not None and row.any():
            empty = int(np.argmin(np.logical_or.reduceat(row, starts)))
            end = starts[empty + 1] if empty + 1 < len(starts) else row.size
            where = f"nothing in dimension {empty} (entries {starts[empty]} to {end - 1} of the mask's {row.size})"
        super().__init__(f"info[{KEY!r}] allows {where}, and the episode goes on")


def dimension_starts(space: Space) -> NDArray | None:
    """Where each dimension's choices begin in a mask, ``[dimensions]``; None where there is but one dimension."""
    match space:
        case MultiDiscrete(nvec=nvec):
            return np.cumsum((0, *nvec[:-1]))
        case MultiBinary(n=n):
            return np.arange(0, 2 * n, 2)
    return None


def mask_row(info: Any, size: int, starts: NDArray | None = None) -> NDArray:
    """The mask in one environment's ``info``, ``[size]`` bool; the masks of several dimensions are joined.

    ``starts`` is from ``dimension_starts``. Raises Misfit where there is none and where it has another size, and
    AllowsNothing where it allows nothing, in one dimension or at all.
    """
    mask = info.get(KEY)
    if mask is None:
        raise Misfit(f"info has no {KEY!r}, though the first reset's info had one")
    try:
        if isinstance(mask, tuple | list):
            mask = np.concatenate([np.asarray(part).reshape(-1) for part in mask])
        row = np.asarray(mask).reshape(-1).astype(np.bool_)  # a copy: the environment may write into its own
    except (TypeError, ValueError) as error:
        raise Misfit(f"info[{KEY!r}] is not an array: {error}") from None
    if row.shape != (size,):
        raise Misfit(f"info[{KEY!r}] has {row.size} entries, but the action space has {size} choices")
    if not (row.any() if starts is None else np.logical_or.reduceat(row, starts).all()):
        raise AllowsNothing(row, starts)
    return row


def mask_batch(
    info: Any, num_envs: int, size: int, starts: NDArray | None = None, idle: NDArray | None = None
) -> NDArray:
    """The masks in a native vector environment's ``info``, ``[B, size]`` bool. Raises as ``mask_row`` does.

    In the rows of ``idle`` (``[B]`` bool) the next action has no effect: a mask that allows nothing counts there as
    one that allows everything.
    """
    given = info.get(KEY)
    if given is None:
        raise Misfit(f"info has no {KEY!r}, though the first reset's info had one")
    idle = np.zeros(num_envs, np.bool_) if idle is None else idle
    if isinstance(given, np.ndarray) and given.dtype != object:
        rows = given.reshape(num_envs, -1).astype(np.bool_)
        if rows.shape[1] != size:
            raise Misfit(f"info[{KEY!r}] has {rows.shape[1]} entries, but the action space has {size} choices")
        usable = rows.any(axis=1) if starts is None else np.logical_or.reduceat(rows, starts, axis=1).all(axis=1)
        rows[idle & ~usable] = True
        if not (usable | idle).all():
            row = int(np.argmin(usable | idle))
            raise Misfit(f"row {row}: {AllowsNothing(rows[row], starts)}")
        return rows
    if len(given) != num_envs:
        raise Misfit(f"info[{KEY!r}] has {len(given)} rows, expected one for each of {num_envs} environments")
    return np.stack([_row_of(one, size, starts, free) for one, free in zip(given, idle, strict=True)])


def _row_of(mask: Any, size: int, starts: NDArray | None, free: bool) -> NDArray:
    """``mask_row``, except that a ``free`` row may have no mask, or one that allows nothing: then all is allowed."""
    if free and mask is None:
        return np.ones(size, np.bool_)
    try:
        return mask_row({KEY: mask}, size, starts)
    except AllowsNothing:
        if not free:
            raise
        return np.ones(size, np.bool_)
