"""How often a run saves: as was asked for, and more often once its state has been lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.runtimes.loop import keeper as keepers
from weft.runtimes.loop.keeper import MIN_PAUSE, Keeper


@pytest.mark.parametrize(
    ("asked", "cost", "passed", "losses", "pause"),
    [
        (30.0, 0.1, 1000.0, 0, 30.0),
        (30.0, 0.5, 1000.0, 10, 10.0),  # every 100 s: the root of 2 * 0.5 * 100
        (5.0, 0.5, 1000.0, 10, 5.0),
        (30.0, 0.1, 100.0, 50, MIN_PAUSE),
        (30.0, 60.0, 100000.0, 1, 30.0),
        (0.0, 0.1, 1000.0, 5, 0.0),
    ],
)
def test_the_time_between_saves(monkeypatch, asked, cost, passed, losses, pause):
    now = 100.0
    monkeypatch.setattr(keepers, "time", SimpleNamespace(monotonic=lambda: now))
    settings = SimpleNamespace(checkpoint_seconds=asked, keep_every=0, keep_checkpoints=1, keep_best=False)
    keeper = Keeper(SimpleNamespace(in_workers=True), settings, SimpleNamespace())
    keeper._cost = cost
    for _ in range(losses):
        keeper.lost()
    now += passed
    assert keeper.pause == pytest.approx(pause)
