"""Action masks: which choices an environment allows now, from ``info["action_mask"]`` into a row of booleans."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from weft.envs.observations import Misfit

NDArray: TypeAlias = np.ndarray[Any, Any]

KEY = "action_mask"


def mask_row(info: Any, size: int) -> NDArray:
    """The mask in one environment's ``info``, ``[size]`` bool; the masks of several dimensions are joined.

    Raises Misfit where there is none, where it has another size, and where it allows nothing.
    """
    mask = info.get(KEY)
    if mask is None:
        raise Misfit(f"info has no {KEY!r}, though the first reset's info had one")
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    try:
        row = np.concatenate([np.asarray(part).reshape(-1) for part in parts]).astype(np.bool_)
    except (TypeError, ValueError) as error:
        raise Misfit(f"info[{KEY!r}] is not an array: {error}") from None
    if row.shape != (size,):
        raise Misfit(f"info[{KEY!r}] has {row.size} entries, but the action space has {size} choices")
    if not row.any():
        raise Misfit(f"info[{KEY!r}] allows no action at all, and the episode goes on")
    return row


def mask_batch(info: Any, num_envs: int, size: int, idle: NDArray | None = None) -> NDArray:
    """The masks in a native vector environment's ``info``, ``[B, size]`` bool. Raises as ``mask_row`` does.

    In the rows of ``idle`` (``[B]`` bool) the next action is of no effect: where the mask allows nothing, all is.
    """
    given = info.get(KEY)
    if given is None:
        raise Misfit(f"info has no {KEY!r}, though the first reset's info had one")
    idle = np.zeros(num_envs, np.bool_) if idle is None else idle
    if isinstance(given, np.ndarray) and given.dtype != object:
        rows = given.reshape(num_envs, -1).astype(np.bool_)
        if rows.shape[1] != size:
            raise Misfit(f"info[{KEY!r}] has {rows.shape[1]} entries, but the action space has {size} choices")
        rows[idle & ~rows.any(axis=1)] = True
        if not rows.any(axis=1).all():
            raise Misfit(f"info[{KEY!r}] allows no action at all in row {int(np.argmin(rows.any(axis=1)))}")
        return rows
    anything = np.ones(size, np.bool_)
    return np.stack(
        [anything if idle[i] and one is None else mask_row({KEY: one}, size) for i, one in enumerate(given)]
    )
