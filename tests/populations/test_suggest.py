"""Members that Optuna chooses: by what it was told, the same again for the same seed, and across an interrupt."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError, MissingExtra
from weft.populations.loop import PopulationLoop, marks
from weft.populations.space import Choices, Interval, Space, Values, draws
from weft.populations.suggest import Suggest

SPACE: Space = {"learning_rate": Interval(1e-5, 1e-1, log=True), "hidden": Choices(((8,), (16,)))}


def score(values: Values) -> float:
    """Best at 1e-3 with the second list."""
    return -abs(math.log10(values["learning_rate"]) + 3) - (values["hidden"] == (8,))


def played(rule: Suggest) -> tuple[dict[int, Values], set[int]]:
    """All members' values and which were stopped, where each round's return is the score."""
    values = dict(enumerate(rule.first()))
    live, stopped = set(values), set()
    past: list[dict[int, float]] = []
    for done in range(1, len(rule.boundaries(rule.steps))):
        returns = {k: score(values[k]) for k in live}
        decision = rule.decide(done, returns, values, past)
        past.append(returns)
        stopped |= set(decision.stops)
        live -= {*decision.stops, *decision.finishes}
        values |= decision.begins
        live |= set(decision.begins)
        assert live
    return values, stopped


def test_suggestions_follow_what_was_told() -> None:
    """Over five seeds the last batch is better in the mean than random draws; only members behind are stopped."""
    late, random = [], []
    for seed in range(5):
        values, stopped = played(Suggest(SPACE, 24, 6, 100, seed))
        assert len(values) == 24
        assert stopped
        assert all(score(values[k]) < max(map(score, values.values())) for k in stopped)
        late.append(np.mean([score(values[k]) for k in range(18, 24)]))
        random.append(np.mean([score(own) for own in draws(SPACE, 24, np.random.default_rng(seed))]))
    assert np.mean(late) > np.mean(random) + 0.4, (late, random)


def test_the_same_seed_and_returns_give_the_same_choices() -> None:
    rule = Suggest(SPACE, 8, 3, 100, 4)
    assert played(rule) == played(rule)
    assert rule.first() != Suggest(SPACE, 8, 3, 100, 5).first()
    assert rule.boundaries(100) == [25, 50, 100] * 3
    assert marks(rule.boundaries(100)) == [25, 50, 100, 125, 150, 200, 225, 250, 300]


def test_members_that_failed_are_told_and_avoided() -> None:
    rule = Suggest({"learning_rate": Interval(0.0, 1.0)}, 20, 10, 4, 0)
    values = dict(enumerate(rule.first()))
    good = {k: 1.0 for k, own in values.items() if own["learning_rate"] < 0.5}
    assert 0 < len(good) < 10
    returns = {k: good.get(k, math.nan) for k in values}
    begun = rule.decide(len(rule.ends), returns, values, [good] * (len(rule.ends) - 1)).begins
    assert np.mean([own["learning_rate"] < 0.5 for own in begun.values()]) >= 0.7


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_to_the_same_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {
        "vary": {"learning_rate": "1e-5..1e-1:log"},
        "members": 4,
        "batch": 2,
        "how": "optuna",
        "steps": 256,
        "envs": 4,
        "root": tmp_path,
        "quiet": True,
        "tensorboard": False,
    }
    algorithm = weft.PPO(unroll=16, minibatches=2, epochs=1, hidden=(8,))
    whole = weft.sweep(algorithm, "weft:CartPole-v1", run="whole", **asked)
    ticks = PopulationLoop._tick

    def interrupted(loop: PopulationLoop, telemetry: Any) -> None:
        ticks(loop, telemetry)
        if loop._done == 3:
            loop.interrupt.came(2)

    with monkeypatch.context() as patched:
        patched.setattr(PopulationLoop, "_tick", interrupted)
        half = weft.sweep(algorithm, "weft:CartPole-v1", run="half", **asked)
    assert [member.exit for member in half.members] == ["finished", "finished", "interrupted", "interrupted"]
    end = weft.sweep(algorithm, "weft:CartPole-v1", run="half", **asked)
    assert end.summary["exit"] == "finished"
    assert end.lineage == whole.lineage
    digests = [[p.load(k).summary["params_sha256"] for k in range(4)] for p in (end, whole)]
    assert digests[0] == digests[1]
    assert [end.load(k).summary["seed"] for k in range(4)] == [0, 1, 2, 3]


def test_without_the_extra_and_with_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"vary": {"clip": "0.1..0.3"}, "steps": 256, "envs": 4, "root": tmp_path, "quiet": True}
    with pytest.raises(ConfigError, match=r"batch=2: with how='random'"):
        weft.sweep("ppo", "weft:CartPole-v1", batch=2, **asked)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"how='optuna' needs 'optuna'.*weft\[optuna\]"):
        weft.sweep("ppo", "weft:CartPole-v1", how="optuna", **asked)
    assert not list(tmp_path.iterdir())
