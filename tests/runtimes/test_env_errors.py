"""Whole runs whose environments raise: they go on, say so once, count, and end the same whatever the plan."""

from __future__ import annotations

import json

import gymnasium as gym
import jax
import numpy as np
import pytest
from toys import SMALL, CounterGym, farthest, flaky, train_state

import weft
from weft.core.errors import EnvironmentFault, EnvironmentRaised
from weft.envs.guards import Trouble
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import RunConfig, Settings, prepare

ENVS, STEPS = 8, 8 * 4 * 30


def train(environment, root, **more):
    more = {"steps": STEPS, **more}
    return weft.train(
        weft.PPO(**SMALL), environment, envs=ENVS, root=root, run="a", quiet=True, tensorboard=False, **more
    )


def test_a_run_whose_environments_raise_now_and_then_goes_on_and_says_so(tmp_path, capsys):
    run = train(flaky, tmp_path)
    assert run.summary["exit"] == "finished"
    assert run.summary["env_errors"] > 10
    assert run.summary["episodes"] > 0
    err = capsys.readouterr().err
    assert err.count("raised RuntimeError in step") == 1, "one kind is told once"
    assert "the simulator lost its grip (its seed was" in err
    assert 'raise RuntimeError("the simulator lost its grip")' in err, "the line of the user's own code"
    assert "--env-errors fail" in err
    assert 'raise RuntimeError("the simulator' in (tmp_path / "a/logs/environments.log").read_text()
    records = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["env_errors"] == run.summary["env_errors"]


def test_asked_to_fail_it_ends_with_the_first(tmp_path):
    with pytest.raises(EnvironmentRaised, match="raised RuntimeError in step"):
        train(flaky, tmp_path, env_errors="fail")
    assert json.loads((tmp_path / "a/summary.json").read_text())["exit"] == "failed"


def test_a_run_that_goes_on_from_a_checkpoint_ends_as_one_that_was_never_interrupted(tmp_path):
    whole = train(flaky, tmp_path / "whole")
    train(flaky, tmp_path / "parts", steps=STEPS // 2)
    parts = train(flaky, tmp_path / "parts")
    assert parts.summary["params_sha256"] == whole.summary["params_sha256"]
    assert parts.summary["env_errors"] == whole.summary["env_errors"]


def learned(plan, logs):
    config = RunConfig(
        weft.PPO(**SMALL), "toys:flaky", plan=plan, envs=ENVS, steps=STEPS, seed=3, lockstep=True, env_options={}
    )
    engine = make_engine(prepare(config), Settings(), logs)
    try:
        engine.start()
        report = engine.advance(30)()
        params = jax.device_get(train_state(engine).params)
        _, document = engine.saved()
    finally:
        engine.close()
    troubles = [*report.troubles, *(Trouble(*t) for t in document.get("troubles", []))]
    return params, sum(trouble.errors for trouble in troubles), report.episodes


@pytest.mark.slow
def test_in_lockstep_the_same_failures_give_the_same_result_in_every_plan(tmp_path):
    params, errors, episodes = learned("inline", tmp_path)
    assert errors > 10
    for plan in ("(env+act)*2 | learn", "env*2 | act | learn"):
        others, counted, told = learned(plan, tmp_path)
        assert farthest(others, params) < 1e-5, plan
        assert counted == errors, plan
        assert told == episodes, plan


class Doomed(CounterGym):
    """The third that is made, after the one that tells its spaces, raises in every step; so does what replaces it."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Doomed.made += 1
        self.bad = Doomed.made == 4 or Doomed.made >= ENVS + 2

    def step(self, action):
        if self.bad:
            raise ValueError("no fuel")
        return super().step(action)


def test_one_that_always_raises_is_given_up_and_teaches_nothing(tmp_path, capsys):
    Doomed.made = 0
    run = train(Doomed, tmp_path)
    assert run.summary["exit"] == "finished"
    assert run.summary["env_errors"] == 6
    assert "number 2 failed 6 times without a good step" in capsys.readouterr().err


class Wears(CounterGym):
    """Good for ten steps; then every step raises, of what replaces it too."""

    total = 0

    def step(self, action):
        Wears.total += 1
        if Wears.total > 10 * ENVS:
            raise ValueError("no fuel")
        return super().step(action)


def test_where_all_fail_the_run_ends_with_the_reason_and_the_traceback(tmp_path):
    Wears.total = 0
    with pytest.raises(EnvironmentFault, match=r"all 8 of a batch failed again and again.*no fuel") as caught:
        train(Wears, tmp_path)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "no fuel" in json.loads((tmp_path / "a/summary.json").read_text())["error"]


class Stops(CounterGym):
    """Its 50th step raises KeyboardInterrupt, as where an environment's library has caught a Ctrl-C."""

    total = 0

    def step(self, action):
        Stops.total += 1
        if Stops.total == 50:
            raise KeyboardInterrupt
        return super().step(action)


def test_an_interrupt_that_an_environment_raises_saves_the_run_and_ends_it(tmp_path):
    Stops.total = 0
    run = train(Stops, tmp_path, steps=10_000_000)
    assert (run.summary["exit"], run.summary["signal"]) == ("interrupted", "SIGINT")
    assert run.summary["learn_steps"] >= 2
    assert any((tmp_path / "a/checkpoints").iterdir()), "saved"
    again = train(Stops, tmp_path, steps=run.summary["env_steps"] + 320)
    assert again.summary["exit"] == "finished"


class Wide(CounterGym):
    """Its observations go beyond the Box that it declares."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 2, (2,), np.float32)


def test_observations_outside_their_box_are_counted_in_the_summary(tmp_path, capsys):
    run = train(Wide, tmp_path)
    assert run.summary["observations_outside_box"] > 0
    err = capsys.readouterr().err
    assert err.count("outside its Box, which goes from 0.0 to 2.0") == 1
    with pytest.raises(EnvironmentFault, match="outside its Box"):
        train(Wide, tmp_path / "b", env_bounds="fail")
