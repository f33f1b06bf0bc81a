"""Curves for a screen: of any number of records, the lowest and the highest of each column of pixels.

All series share one grid of buckets over the x axis, two places for each bucket. A series has there its lowest and its
highest value, in the order in which they came: drawn with a line, that covers the same pixels as all of its records
would. A bucket with one record has one value, a bucket with none has none.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

MOST_BUCKETS = 4000


def grid(low: float, high: float, buckets: int) -> Floats:
    """The x of each place: ``[2 * buckets]``, from just above ``low`` to just below ``high``."""
    width = (high - low) / buckets
    places: Floats = low + width * (np.arange(2 * buckets, dtype=np.float64) * 0.5 + 0.25)
    return places


def extremes(x: Floats, y: Floats, low: float, high: float, buckets: int) -> Floats:
    """The values of one series on the grid, ``[2 * buckets]``, NaN where there is none.

    ``x`` need not be sorted. Points outside ``low`` to ``high``, and those that are not finite, are left out. Takes
    time and memory in proportion to the points that are within.
    """
    out: Floats = np.full(2 * buckets, np.nan)
    with np.errstate(invalid="ignore"):
        within = np.flatnonzero((x >= low) & (x <= high) & np.isfinite(y))
    if not len(within):
        return out
    place = _places(x[within], low, high, buckets)
    if np.any(place[1:] < place[:-1]):  # curves may go back where a run was resumed
        order = np.argsort(place, kind="stable")
        within, place = within[order], place[order]
    values = y[within]
    starts = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    lowest, highest = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    first, last = values[starts], values[np.r_[starts[1:], len(values)] - 1]
    # Which came first: exact where one of them is the bucket's first or last record, else it makes no difference
    # to what is drawn but for the slope of the joining lines.
    low_first = (first == lowest) | ((first != highest) & (last == highest))
    at, several = place[starts], lowest != highest
    out[2 * at] = np.where(several, np.where(low_first, lowest, highest), last)
    out[2 * at[several] + 1] = np.where(low_first, highest, lowest)[several]
    return out


def means(x: Floats, y: Floats, low: float, high: float, buckets: int) -> Floats:
    """The mean of each bucket, ``[buckets]``, joined by straight lines where one has none; NaN outside the series."""
    with np.errstate(invalid="ignore"):
        within = (x >= low) & (x <= high) & np.isfinite(y)
    place = _places(x[within], low, high, buckets)
    counts = np.bincount(place, minlength=buckets)
    sums = np.bincount(place, weights=y[within], minlength=buckets)
    found = np.flatnonzero(counts)
    if not len(found):
        return np.full(buckets, np.nan)
    every = np.arange(buckets, dtype=np.float64)
    return np.interp(every, found, sums[found] / counts[found], left=np.nan, right=np.nan)


def spread(curves: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Mean, lowest and highest of several series of ``means``, where any of them has a value."""
    stacked = np.stack(curves)
    here = np.isfinite(stacked)
    counts = here.sum(0)
    none = counts == 0
    mean = np.where(here, stacked, 0.0).sum(0) / np.maximum(counts, 1)
    lowest, highest = np.where(here, stacked, np.inf).min(0), np.where(here, stacked, -np.inf).max(0)
    return tuple(np.where(none, np.nan, part) for part in (mean, lowest, highest))  # type: ignore[return-value]


def rounded(values: Floats) -> list[float | None]:
    """For JSON: six figures, None where there is no value."""
    return [None if value != value else float(f"{value:.6g}") for value in values.tolist()]


def _places(x: Floats, low: float, high: float, buckets: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    span = high - low
    share = (x - low) / span if span > 0 else np.zeros(len(x))
    return np.clip((share * buckets).astype(np.int64), 0, buckets - 1)
