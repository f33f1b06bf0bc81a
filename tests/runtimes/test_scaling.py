"""A run that is scaled on its way: in lockstep it is to the bit as if it never had been; else its ledger balances."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft.services.scale_request import FOLDER, ScaleRequest, post

SMALL: dict[str, Any] = {"envs": 8, "seed": 3, "quiet": True, "tensorboard": False, "unroll": 16, "hidden": (8,)}


class Asking:
    """Asks a run, record by record, for one change after another."""

    def __init__(self, folder: Path, *changes: dict[str, int]) -> None:
        self.folder, self.left, self.plans = folder, list(changes), list[str]()

    def __call__(self, record: dict[str, Any]) -> None:
        plan = json.loads((self.folder / "plan.json").read_text())["expression"]
        if not self.plans or plan != self.plans[-1]:
            self.plans.append(plan)
            if self.left:
                post(self.folder, ScaleRequest(os.getpid(), self.left.pop(0)))


def close(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def balanced(samples: dict[str, Any]) -> bool:
    return bool(samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"])


def test_in_lockstep_a_scaled_run_is_as_one_that_never_was(tmp_path: Path) -> None:
    """Environments are cut into other lanes; up to the order in which numbers are summed."""
    asking = Asking(tmp_path / "r", {"env": 4})
    how = {**SMALL, "root": tmp_path, "lockstep": True, "steps": 2048}
    scaled = weft.train("ppo", "CartPole-v1", plan="env | act+learn", on_record=asking, run="r", **how)
    assert asking.plans == ["env | act+learn", "env*4 | act+learn"]
    close(scaled.params, weft.train("ppo", "CartPole-v1", plan="inline", run="i", **how).params)
    samples = scaled.summary["samples"]
    assert (samples["produced"], samples["trained"], samples["in_flight"]) == (2048, 2048, 0)
    assert scaled.summary["plan"] == "env*4 | act+learn"
    assert scaled.summary["restarts"] == 0
    assert json.loads((tmp_path / "r" / "config.json").read_text())["plan"] == "env | act+learn"
    (answered,) = (tmp_path / "r" / FOLDER).iterdir()
    answer = json.loads(answered.read_text())
    assert (answer["became"], answer["plan"]) == ("scaled", "env*4 | act+learn")
    assert answer["text"].startswith("env: from 1 replica to 4 replicas; ")
    live = json.loads((tmp_path / "r" / "live.json").read_text())
    assert [worker["name"] for worker in live["workers"]] == ["env-0", "env-1", "env-2", "env-3", "act+learn-0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "environment", "changes"),
    [
        ("env*2 | act | learn", "CartPole-v1", [{"env": 4, "act": 2}, {"env": 1, "act": 1}]),
        ("(env+act)*2 | learn", "weft:CartPole-v1", [{"env": 4}, {"act": 1}]),
        ("(env+act)*4 | learn*2", "CartPole-v1", [{"env": 2}, {"act": 8}]),
    ],
)
@pytest.mark.parametrize("lockstep", [True, False])
def test_up_and_down_nothing_is_missing(
    tmp_path: Path, plan: str, environment: str, changes: list[dict[str, int]], lockstep: bool
) -> None:
    asking = Asking(tmp_path / "r", *changes)
    # Sums in another order move params by a last place, and before long that draws another action.
    steps = 4096 if lockstep else 16384
    how = {**SMALL, "root": tmp_path, "run": "r", "lockstep": lockstep, "steps": steps}
    scaled = weft.train("ppo", environment, plan=plan, on_record=asking, **how)
    assert len(asking.plans) == 3
    assert balanced(scaled.summary["samples"])
    assert scaled.summary["samples"]["trained"] == steps
    if lockstep:
        never = weft.train("ppo", environment, plan=plan, **{**how, "run": "n"})
        close(scaled.params, never.params)


@pytest.mark.slow
def test_a_scaled_run_resumes_under_the_plan_that_was_asked_for(tmp_path: Path) -> None:
    """In lockstep exactly, although its last checkpoint was saved with other lanes."""
    asking = Asking(tmp_path / "r", {"env": 4})
    how = {**SMALL, "root": tmp_path, "run": "r", "lockstep": True, "plan": "env | act | learn"}
    weft.train("ppo", "CartPole-v1", steps=2048, on_record=asking, **how)
    assert asking.plans[-1] == "env*4 | act | learn"
    resumed = weft.train("ppo", "CartPole-v1", steps=4096, **how)
    assert resumed.summary["plan"] == "env | act | learn"
    half = weft.train("ppo", "CartPole-v1", steps=2048, **{**how, "run": "n"})
    assert half.summary["learn_steps"] == 16
    never = weft.train("ppo", "CartPole-v1", steps=4096, **{**how, "run": "n"})
    close(resumed.params, never.params)


@pytest.mark.slow
def test_evaluation_and_a_curriculum_go_on_over_it(tmp_path: Path) -> None:
    from curricula import Marked, rise

    asking = Asking(tmp_path / "r", {"env": 4}, {"env": 2})
    how = {**SMALL, "root": tmp_path, "run": "r", "eval_every": 1024, "eval_episodes": 2, "curriculum": rise}
    run = weft.train("ppo", Marked(), steps=65536, plan="env | act | learn", on_record=asking, **how)
    assert asking.plans == [
        "env | act | learn | evaluate",
        "env*4 | act | learn | evaluate",
        "env*2 | act | learn | evaluate",
    ]
    assert run.summary["evaluation"]["version"] == run.summary["learn_steps"]
    assert run.summary["curriculum"]["changes"], "options were set on the way"
    assert balanced(run.summary["samples"])
