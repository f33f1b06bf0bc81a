"""The ledger of samples."""

from __future__ import annotations

import json

from weft.telemetry.ledger import Ledger


def test_it_balances_only_when_every_sample_is_accounted_for() -> None:
    ledger = Ledger()
    assert ledger.balanced
    ledger.produce(100)
    assert (ledger.balanced, ledger.missing) == (False, 100)
    ledger.train(60)
    ledger.drop("stale", 20)
    ledger.drop("stale", 5)
    ledger.drop("worker died", 5)
    ledger.in_flight = 10
    assert ledger.balanced
    ledger.train(1)
    assert (ledger.balanced, ledger.missing) == (False, -1)  # one was trained twice


def test_the_summarys_samples() -> None:
    ledger = Ledger(10, 7)
    ledger.drop("stale", 2)
    ledger.drop("late", 1)
    ledger.drop("never", 0)
    assert ledger.to_json() == {"produced": 10, "trained": 7, "dropped": {"late": 1, "stale": 2}, "in_flight": 0}
    assert Ledger.from_json(json.loads(json.dumps(ledger.to_json()))) == ledger


def test_merging_adds_and_shares_nothing() -> None:
    ours, theirs = Ledger(5, 3, {"stale": 1}, 1), Ledger(7, 4, {"stale": 2, "late": 1}, 0)
    ours.merge(theirs)
    assert ours == Ledger(12, 7, {"stale": 3, "late": 1}, 1)
    assert ours.balanced
    ours.drop("late", 5)
    assert theirs.dropped == {"stale": 2, "late": 1}
