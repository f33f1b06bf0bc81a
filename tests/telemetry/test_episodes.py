"""The window of recent episodes."""

from __future__ import annotations

import json
import math
import random

import pytest

from weft.telemetry.episodes import EpisodeWindow


def test_single_episodes_give_exactly_the_last_hundred() -> None:
    window = EpisodeWindow()
    returns = [random.Random(0).gauss(0, 1e3) for _ in range(250)]
    for index, value in enumerate(returns):
        window.add_episode(value, index)
    assert window.count == 100
    assert window.total == 250
    assert window.return_mean == math.fsum(returns[-100:]) / 100
    assert window.length_mean == sum(range(150, 250)) / 100


def test_before_the_first_episode_the_means_are_nan() -> None:
    window = EpisodeWindow()
    window.add(0, 0.0, 0)
    assert math.isnan(window.return_mean)
    assert math.isnan(window.length_mean)
    assert window.total == 0


def test_slices_are_the_fewest_latest_that_hold_enough() -> None:
    window = EpisodeWindow(size=10)
    window.add(6, 60.0, 6)
    assert (window.count, window.return_mean) == (6, 10.0)
    window.add(3, 60.0, 3)
    window.add(7, 0.0, 7)
    assert (window.count, window.return_mean) == (10, 6.0)  # 3 and 7 are enough: the first slice went
    window.add(4, 0.0, 4)
    assert window.count == 11  # 7 and 4
    window.add(1000, 5000.0, 2000)
    assert (window.count, window.return_mean, window.length_mean) == (1000, 5.0, 2.0)
    assert window.total == 1020


def test_the_record_uses_the_names_that_all_records_use() -> None:
    window = EpisodeWindow()
    window.add_episode(3.0, 4)
    assert window.record() == {"episodes": 1, "return_mean": 3.0, "episode_length_mean": 4.0}


def test_a_restored_window_goes_on_exactly_as_the_one_saved() -> None:
    chance = random.Random(1)
    window = EpisodeWindow(size=20)
    for _ in range(33):
        window.add(chance.randrange(4), chance.gauss(0, 1), chance.randrange(100))
    restored = EpisodeWindow.from_json(json.loads(json.dumps(window.to_json())))
    for _ in range(40):
        assert restored.record() == pytest.approx(window.record(), abs=0, rel=0)
        assert (restored.count, restored.total) == (window.count, window.total)
        count, value, length = chance.randrange(4), chance.gauss(0, 1), chance.randrange(100)
        window.add(count, value, length)
        restored.add(count, value, length)
