"""The benchmark of channels runs, at tiny sizes. No test here asserts a speed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from benchmarks import streams
from benchmarks.measure import interleave
from benchmarks.options import Options


def test_every_contender_carries_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SIZES", (1 << 16,))
    with ExitStack() as stack:
        outcomes = interleave(streams.cases(Options(rounds=1, seconds=0.01), stack), 1)
        assert [len(outcome.spreads) for outcome in outcomes] == [2, 3, 3]
        for outcome in outcomes:
            assert all(spread.median > 0 for name, spread in outcome.spreads.items() if "less" not in name)
