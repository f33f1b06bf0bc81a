"""What is drawn of many records is what would be drawn of all: against a slow oracle."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from weft.dashboard.curves import extremes, grid, means, rounded, spread


def oracle(x, y, low, high, buckets):
    """Bucket by bucket, point by point: the set of lowest and highest."""
    found = [[] for _ in range(buckets)]
    for a, b in zip(x, y, strict=True):
        if low <= a <= high and math.isfinite(b):
            found[min(buckets - 1, int((a - low) / (high - low) * buckets))].append(b)
    return [(min(values), max(values)) if values else None for values in found]


def series(seed, count, kind):
    rng = random.Random(seed)
    x = [float(k * 7) for k in range(count)]
    if kind == "back":  # a run that was resumed may have records that go back
        x = x[: count // 2] + x[count // 4 : count // 4 + count - count // 2]
    y = [rng.gauss(0, 1) for _ in range(count)]
    if kind == "gaps":
        y = [math.nan if rng.random() < 0.3 else v for v in y]
    return np.array(x), np.array(y)


@pytest.mark.parametrize("kind", ["plain", "gaps", "back"])
@pytest.mark.parametrize(("count", "buckets"), [(1, 10), (7, 50), (1000, 37), (5000, 400)])
def test_each_bucket_has_its_lowest_and_its_highest(kind, count, buckets):
    for seed in range(5):
        x, y = series(seed, count, kind)
        for low, high in ((0.0, 7.0 * count), (1.5 * count, 4.0 * count)):
            out = extremes(x, y, low, high, buckets).reshape(buckets, 2)
            for pair, expected in zip(out, oracle(x, y, low, high, buckets), strict=True):
                kept = [v for v in pair if math.isfinite(v)]
                if expected is None:
                    assert kept == []
                else:
                    assert (min(kept), max(kept)) == expected


def test_a_spike_of_one_record_in_a_million_is_seen():
    x = np.arange(1_000_000, dtype=np.float64)
    y = np.zeros(1_000_000)
    y[777_777] = 5.0
    out = extremes(x, y, 0.0, 1e6, 600)
    assert np.nanmax(out) == 5.0
    assert abs(grid(0.0, 1e6, 600)[int(np.nanargmax(out))] - 777_777) < 1e6 / 600


def test_the_order_within_a_bucket_is_that_of_the_records():
    rising = extremes(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]), 0.0, 10.0, 1)
    falling = extremes(np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, 1.0]), 0.0, 10.0, 1)
    assert rising.tolist() == [1.0, 3.0]
    assert falling.tolist() == [3.0, 1.0]


def test_means_join_gaps_within_and_not_outside():
    found = means(np.array([10.0, 30.0]), np.array([1.0, 3.0]), 0.0, 50.0, 5)
    assert np.isnan(found[0])
    assert found[1:4].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(found[4])


def test_the_spread_of_seeds():
    a, b = np.array([1.0, 2.0, np.nan, np.nan]), np.array([3.0, np.nan, 5.0, np.nan])
    mean, lowest, highest = spread([a, b])
    assert rounded(mean) == [2.0, 2.0, 5.0, None]
    assert rounded(lowest) == [1.0, 2.0, 5.0, None]
    assert rounded(highest) == [3.0, 2.0, 5.0, None]
