"""Schedules: numbers that change over a run."""

from __future__ import annotations

import optax


def linear(start: float, end: float | None, steps: int) -> optax.Schedule:
    """Goes from ``start`` to ``end`` over ``steps`` and stays there; constant where ``end`` is None."""
    return optax.constant_schedule(start) if end is None else optax.linear_schedule(start, end, max(steps, 1))
