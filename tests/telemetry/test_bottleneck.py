"""Naming the bottleneck, and numbers as people read them."""

from __future__ import annotations

import math

import pytest

from weft.telemetry.bottleneck import HINTS, bottleneck, shares
from weft.telemetry.figures import duration, figure, percent, sparkline
from weft.telemetry.progress import Progress


def test_the_largest_share_is_named_with_what_to_change() -> None:
    said = bottleneck({"time/act": 0.2, "time/env": 0.7, "time/learn": 0.1, "loss/value": 99.0})
    assert said.startswith("env-bound: ")
    assert "env*N | act+learn" in said
    for stage in HINTS:
        assert bottleneck({f"time/{stage}": 1.0}) == f"{stage}-bound: {HINTS[stage]}"


def test_nearly_even_stages_are_balanced_and_unknown_ones_are_still_named() -> None:
    assert bottleneck({"time/env": 0.35, "time/learn": 0.34, "time/act": 0.31}).startswith("balanced: env and learn")
    assert bottleneck({"time/reanalyse": 0.8, "time/env": 0.2}) == "reanalyse-bound: 80% of the time goes there"


@pytest.mark.parametrize(
    "record", [{}, {"return_mean": 3.0}, {"time/env": math.nan}, {"time/env": 0.0}, {"time/env": "x"}]
)
def test_without_shares_nothing_is_said(record: dict[str, float | int | str]) -> None:
    assert bottleneck(record) == ""


def test_shares_are_sorted() -> None:
    assert list(shares({"time/act": 0.2, "time/env": 0.7, "time/learn": 0.1})) == ["env", "act", "learn"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1234567, "1,234,567"),
        (45123.4, "45,123"),
        (412.34, "412.3"),
        (12.345, "12.35"),
        (-0.5123, "-0.512"),
        (0.0123456, "0.01235"),
        (0.08, "0.08"),
        (1.234e-5, "1.2e-05"),
        (-3e12, "-3.0e+12"),
        (0.0, "0"),
        (math.inf, "inf"),
        (math.nan, "–"),
        ("text", "text"),
    ],
)
def test_figures(value: float | int | str, words: str) -> None:
    assert figure(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (41.6, "42 s"),
        (59.7, "1:00"),
        (187, "3:07"),
        (8100, "2:15:00"),
        (3 * 86400 + 14400, "3 d 04:00"),
        (math.nan, "–"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_percents_and_sparklines() -> None:
    assert (percent(0.625), percent(math.nan)) == ("62%", "–")
    assert sparkline([0, 1, 2, math.nan, 7], 10) == "▁▂▃█"
    assert sparkline([5, 5, 5], 10) == "▁▁▁"
    assert sparkline(list(range(100)), 2) == "▁█"
    assert sparkline([1], 10) == ""


def test_progress_uses_the_speed_told_and_else_measures_since_the_first_record() -> None:
    now = [100.0]
    progress = Progress(1000, lambda: now[0])
    progress.follow({}, 400)  # a resumed run starts here: those 400 were not made in no time
    assert math.isnan(progress.seconds_left)
    now[0] += 2
    progress.follow({}, 500)
    assert progress.env_steps_per_second == 50
    assert (progress.share, progress.seconds_left) == (0.5, 10)
    progress.follow({"env_steps_per_second": 250.0}, 500)
    assert progress.seconds_left == 2
    progress.follow({"env_steps_per_second": math.nan}, 1200)
    assert (progress.share, progress.seconds_left) == (1.0, 0)


def test_progress_without_an_end() -> None:
    progress = Progress(None, lambda: 0.0)
    progress.follow({"env_steps_per_second": 10.0}, 5)
    assert math.isnan(progress.share)
    assert math.isnan(progress.seconds_left)
