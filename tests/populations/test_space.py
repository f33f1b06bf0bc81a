"""What is varied: read, refused, drawn, moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError, UnknownName
from weft.populations.space import Choices, Interval, draws, explored, grid, read_space, split_said

PPO = weft.PPO()


def test_intervals_and_lists_are_read() -> None:
    said = split_said(["learning-rate=1e-4..1e-2:log", "entropy_cost=0,0.01", "unroll=16..64", "activation=tanh,relu"])
    space = read_space(said, PPO)
    assert space == {
        "learning_rate": Interval(1e-4, 1e-2, log=True),
        "entropy_cost": Choices((0.0, 0.01)),
        "unroll": Interval(16, 64, whole=True),
        "activation": Choices(("tanh", "relu")),
    }
    assert read_space({"clip": [1, 0.2]}, PPO) == {"clip": Choices((1.0, 0.2))}


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({}, "nothing is varied"),
        ({"learning_rte": "0..1"}, "Did you mean 'learning_rate'"),
        ({"lr": "0..1"}, "Did you mean 'learning_rate'"),
        ({"clip": "0.3..0.1"}, "upside down.*0.1..0.3"),
        ({"clip": "0.1..0.1"}, "empty"),
        ({"clip": "0..1:log"}, "above 0"),
        ({"clip": "0..1:exp"}, "unknown scale 'exp'"),
        ({"clip": "a..1"}, "'a' is no number"),
        ({"clip": "0.1"}, "a single value"),
        ({"clip": 0.1}, "expected a list"),
    ],
)
def test_what_cannot_be_varied_is_refused(vary: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_space(vary, PPO)


@pytest.mark.parametrize("said", [["clip"], ["=1"], ["clip="], ["clip=0..1", "clip=1,2"]])
def test_a_vary_flag_that_says_nothing(said: list[str]) -> None:
    with pytest.raises(ConfigError, match="--vary"):
        split_said(said)


def test_an_unknown_field_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        read_space({"nope": "0..1"}, PPO)


def test_draws_are_within_and_even_in_the_logarithm() -> None:
    space = read_space({"learning_rate": "1e-4..1e-2:log", "clip": [0.1, 0.2]}, PPO)
    drawn = draws(space, 2_000, np.random.default_rng(0))
    rates = np.array([values["learning_rate"] for values in drawn])
    assert rates.min() >= 1e-4
    assert rates.max() <= 1e-2
    assert abs(np.mean(rates < 1e-3) - 0.5) < 0.05
    assert {values["clip"] for values in drawn} == {0.1, 0.2}


def test_a_grid_has_every_combination() -> None:
    space = read_space({"learning_rate": "1e-4..1e-2:log", "clip": [0.1, 0.2]}, PPO)
    found = grid(space, 7)
    assert [(v["learning_rate"], v["clip"]) for v in found] == [
        (1e-4, 0.1),
        (1e-4, 0.2),
        (1e-3, 0.1),
        (1e-3, 0.2),
        (1e-2, 0.1),
        (1e-2, 0.2),
    ]
    with pytest.raises(ConfigError, match="at least 4 points"):
        grid(space, 3)


def test_exploring_moves_a_little_and_stays_within() -> None:
    space = read_space({"learning_rate": "1e-4..1e-2:log", "discount": "0.9..1", "clip": [0.1, 0.2, 0.3]}, PPO)
    random = np.random.default_rng(0)
    start = {"learning_rate": 1e-3, "discount": 1.0, "clip": 0.2}
    found = [explored(space, start, random) for _ in range(400)]
    near = {round(values["learning_rate"], 9) for values in found}
    assert {1.25e-3, 8e-4} <= near
    assert len(near) > 50  # those that were drawn anew
    assert all(0.9 <= values["discount"] <= 1.0 for values in found)
    assert any(values["discount"] == pytest.approx(0.98) for values in found)
    assert {values["clip"] for values in found} == {0.1, 0.2, 0.3}
