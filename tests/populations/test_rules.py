"""What becomes of members after a round: decisions from returns alone."""

from __future__ import annotations

import math

from weft.populations.rules import Exploit, Halving, Together, best_first
from weft.populations.space import Interval, Space

SPACE: Space = {"learning_rate": Interval(1e-4, 1e-2, log=True)}
VALUES = {k: {"learning_rate": 1e-3} for k in range(8)}


def test_members_without_a_return_are_last() -> None:
    assert best_first({0: math.nan, 1: 2.0, 2: -5.0, 3: 2.0, 4: -math.inf}) == [1, 3, 2, 0, 4]


def test_a_plain_sweep_decides_nothing() -> None:
    assert Together().boundaries(100) == [100]
    assert not Together().decide(1, {0: 1.0}, VALUES).stops


def test_halving_keeps_the_better_half_and_doubles_the_steps() -> None:
    rule = Halving(8)
    assert rule.boundaries(8_000) == [1_000, 2_000, 4_000, 8_000]
    assert rule.decide(1, {k: float(k) for k in range(8)}, VALUES).stops == (0, 1, 2, 3)
    assert rule.decide(2, {4: math.nan, 5: 1.0, 6: 0.0}, VALUES).stops == (4, 6)
    assert Halving(5).boundaries(80) == [10, 20, 40, 80]
    assert Halving(2).boundaries(1) == [1]  # too few steps to cut


def test_the_worst_copy_the_best_and_explore() -> None:
    rule = Exploit(SPACE, every=10, seed=3)
    assert rule.boundaries(35) == [10, 20, 30, 35]
    assert rule.boundaries(30) == [10, 20, 30]
    returns = {0: 5.0, 1: math.nan, 2: 7.0, 3: 6.0, 4: 4.0, 5: 9.0, 6: 8.0, 7: 1.0}
    decision = rule.decide(2, returns, VALUES)
    assert set(decision.copies) == {1, 7}
    assert set(decision.copies.values()) <= {5, 6}
    assert all(decision.values[k]["learning_rate"] != 1e-3 for k in decision.copies)
    assert decision == rule.decide(2, returns, VALUES)  # a run that goes on decides the same
    assert decision != rule.decide(3, returns, VALUES)


def test_nobody_copies_where_nothing_is_known_or_nobody_is_better() -> None:
    rule = Exploit(SPACE, every=10, seed=0)
    assert not rule.decide(1, dict.fromkeys(range(4), math.nan), VALUES).copies
    assert not rule.decide(1, dict.fromkeys(range(4), 3.0), VALUES).copies
