"""What looks on in a run: when it looks, what is logged and kept of it, and that training is the same without it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from toys import SMALL, Counter, CounterGym, Probe

import weft
from weft.core.errors import GraphError
from weft.runtimes.policies.interval import interval_of_mean
from weft.runtimes.watcher import Pace

QUIET: dict[str, Any] = {"quiet": True, "tensorboard": False}


def trained(root, environment, run, algorithm=None, **options):
    options = {"envs": 8, "steps": 32 * 12, "seed": 3, **QUIET, **options}
    return weft.train(algorithm or weft.PPO(**SMALL), environment, root=root, run=run, **options)


def looks(run, name="eval/version"):
    records = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if name in record]


@pytest.mark.parametrize("environment", [Counter(), CounterGym], ids=["jax", "host"])
def test_training_is_the_same_to_the_last_bit_and_evaluation_is_that_of_weft_eval(tmp_path, environment):
    plain = trained(tmp_path, environment, "plain")
    run = trained(tmp_path, environment, "watched", eval_every=150, eval_episodes=5)
    assert run.summary["params_sha256"] == plain.summary["params_sha256"]
    assert "evaluation" not in plain.summary
    found = looks(run)
    assert [one["eval/version"] for one in found] == [5, 10, 12], "every 5 versions of 32 steps, and at the end"
    assert [one["learn_steps"] for one in found] == [5, 10, 12], "in the record of those params"
    again = weft.evaluate(run, episodes=5)
    told = run.summary["evaluation"]
    assert told["return_mean"] == found[-1]["eval/return_mean"] == again.return_mean
    assert (told["return_low"], told["return_high"]) == interval_of_mean(again.returns)
    assert told["return_low"] <= told["return_mean"] <= told["return_high"]
    assert (told["episodes"], told["version"]) == (5, 12)
    assert told["seconds"] > 0


@dataclass(frozen=True)
class Scores:
    """Looks at nothing, and gives scores by version; keeps what it saw."""

    every: int = 64
    scores: tuple[float, ...] = (1.0, 3.0, 2.0)

    def watcher(self, context: weft.WatchContext) -> Any:
        return lambda seen: weft.Looked({"mine/seen": seen.env_steps}, self.scores[seen.version // 2 - 1])


@dataclass(frozen=True)
class Watched(Probe):
    watch: Any = Scores()

    def graph(self) -> weft.Graph:
        return super().graph().watch("mine", self.watch)


def test_the_params_of_the_highest_score_are_kept_as_best(tmp_path):
    """The second of three looks has the highest score."""
    run = trained(tmp_path, Counter(), "scored", Watched(unroll=4), steps=32 * 6)
    assert [record["mine/seen"] for record in looks(run, "mine/seen")] == [64, 128, 192]
    assert run.summary["evaluation"]["best"] == {"score": 3.0, "version": 4, "env_steps": 128}
    best = weft.load(run.folder, checkpoint="best", algorithm=Watched(unroll=4), environment=Counter())
    assert (best.params["weight"], run.params["weight"]) == (6.0, 8.0), "it grows by 1 with each learn step"
    assert (best.summary["learn_steps"], best.summary["env_steps"]) == (4, 128)


def test_a_resumed_run_looks_where_one_without_a_break_does(tmp_path):
    whole = trained(tmp_path, Counter(), "whole", steps=32 * 12, eval_every=32 * 3, eval_episodes=2)
    trained(tmp_path, Counter(), "parts", steps=32 * 6, eval_every=32 * 3, eval_episodes=2)
    parts = trained(tmp_path, Counter(), "parts", steps=32 * 12, eval_every=32 * 3, eval_episodes=2)
    assert [one["eval/version"] for one in looks(whole)] == [3, 6, 9, 12]
    assert [one["eval/version"] for one in looks(parts)] == [3, 6, 9, 12]
    mean = "eval/return_mean"
    assert [one[mean] for one in looks(parts)] == [one[mean] for one in looks(whole)]
    other = trained(tmp_path, Counter(), "parts", steps=32 * 16, eval_every=32 * 4, eval_episodes=3)
    assert looks(other)[-1]["eval/version"] == 16, "how it is evaluated may be another when it goes on"


def test_several_seeds_are_each_evaluated(tmp_path):
    run = trained(tmp_path, Counter(), "seeds", seeds=2, eval_every=32 * 12, eval_episodes=4)
    told = run.summary["evaluation"]
    means = [weft.evaluate(run, episodes=4, seed=k).return_mean for k in (0, 1)]
    assert [told["return_mean/0"], told["return_mean/1"]] == means
    assert told["episodes"] == 8


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (object(), "its code needs every, a whole number of at least 1, got None in object"),
        (Scores(every=0), "got 0 in Scores"),
    ],
)
def test_what_cannot_look_on_is_refused_before_it_runs(tmp_path, code, words):
    with pytest.raises(GraphError, match=words):
        trained(tmp_path, Counter(), "bad", Watched(unroll=4, watch=code))


@dataclass(frozen=True)
class Wrong:
    every: int = 32
    gives: Any = None

    def __getattr__(self, name: str) -> Any:
        if name == "watcher" and self.gives is not None:
            return lambda context: lambda seen: self.gives
        raise AttributeError(name)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Wrong(), "looks on, and its code, a Wrong, has no watcher"),
        (Wrong(gives={"a": 1.0}), "a watcher returns weft.Looked.*got dict"),
    ],
)
def test_code_that_is_no_watcher_is_named(tmp_path, code, words):
    with pytest.raises(GraphError, match=words):
        trained(tmp_path, Counter(), "bad", Watched(unroll=4, watch=code))


def test_students_interval_by_hand():
    """Of 1, 2, 3, 4: deviation 1.29099, and 3.18245 is Student's 97.5 % point of 3 degrees of freedom."""
    low, high = interval_of_mean([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * 1.290994 / 2
    assert np.allclose([low, high], [2.5 - half, 2.5 + half], atol=1e-5)
    assert all(map(math.isnan, interval_of_mean([7.0])))


def test_when_params_are_due():
    pace = Pace(steps_per_learn=100, calls=4, before=10, total=50)
    assert pace.between(1000) == 40
    assert pace.between(30) == 4, "an unroll's learn steps at least"
    assert pace.steps_until(0) == 1000
    assert pace.steps_until(5) == 1200, "the second unroll after the store was filled"
    assert [v for v in range(1, 51) if pace.is_due(v, v - 1, 1000)] == [40, 50]
