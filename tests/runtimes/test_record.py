"""Recording: the steps as the environments gave them, with the right ends; in a folder that was free."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from toys import SMALL, Counter, CounterGym, Masked, flaky

import weft
from weft.core.errors import ConfigError
from weft.data import Dataset
from weft.envs.guards import Guards, guarded
from weft.envs.registry import open_environment
from weft.runtimes.policies.policy import Policy
from weft.runtimes.policies.record import record_steps


def policy_of(source, greedy=True, **fields):
    algorithm = weft.PPO(**{**SMALL, **fields}).bind(weft.Spec(source.spec, 4, 10))
    return Policy(algorithm, algorithm.init(jax.random.key(0)).params, greedy=greedy)


def recorded(environment, steps, **options):
    source = open_environment(environment)
    return record_steps(policy_of(source, **options), source, steps=steps, seed=5)


def host_counter():
    return CounterGym(ends="terminated")


@pytest.mark.parametrize(
    ("environment", "ends"),
    [(Counter(), "truncated"), (Counter(ends="terminated"), "terminated"), (host_counter, "terminated")],
    ids=["jax-cut", "jax-ended", "host-ended"],
)
def test_steps_are_those_of_the_environment(environment, ends):
    data = recorded(environment, 11)
    assert data.lengths.tolist() == [3, 3, 3, 2]
    assert data.ended.tolist() == [True, True, True, False]
    drawn = set()
    for episode in data.episodes:
        length = len(episode.reward)
        assert episode.observation[:, 0].tolist() == list(range(length + 1))  # the last is its own, not the next one's
        assert episode.reward.tolist() == [11.0, 12.0, 13.0][:length]
        assert len(set(episode.observation[:, 1].tolist())) == 1
        drawn.add(float(episode.observation[0, 1]))
        flags = {"terminated": episode.terminated, "truncated": episode.truncated}
        assert flags.pop(ends).tolist() == [False, False, length == 3][:length]
        assert not next(iter(flags.values())).any()
    assert len(drawn) == 4
    assert data.return_mean == 36.0


def test_many_steps_are_played_in_several_environments():
    data = recorded(Counter(), 2_000)
    assert data.steps == 2_000
    assert len({float(x) for x in data.observation[:, 1]}) == len(data.lengths)
    assert (~data.ended).sum() <= 2


def test_masks_come_along_and_all_is_allowed_where_nobody_acts():
    data = recorded(Masked(), 20)
    assert data.action_mask is not None
    for episode in data.episodes:
        allowed = episode.action_mask[np.arange(len(episode.action)), episode.action]
        assert allowed.all()
        assert episode.action_mask[-1].all() or not (episode.terminated | episode.truncated)[-1]


def test_what_an_environment_failed_in_is_left_out():
    source = guarded(open_environment(flaky), Guards("reset"))
    data = record_steps(policy_of(source), source, steps=300, seed=1)
    assert data.steps < 300
    for episode in data.episodes:
        assert episode.observation[:, 0].tolist() == list(range(len(episode.reward) + 1))
        assert len(set(episode.observation[:, 1].tolist())) == 1


def test_actions_are_recorded_as_the_environment_takes_them():
    source = open_environment("weft:Pendulum-v1")
    data = record_steps(policy_of(source, greedy=False, deviation=3.0), source, steps=200, seed=1)
    assert np.abs(data.action).max() == 1.0
    assert data.action.dtype == np.float32


def test_a_run_records_and_says_how(tmp_path):
    settings = {"envs": 4, "steps": 64, "root": tmp_path / "runs", "quiet": True, "tensorboard": False}
    run = weft.train(weft.PPO(**SMALL), Counter(), run="first", **settings)
    data = run.record(tmp_path / "data", steps=12, explore=True, seed=9)
    assert isinstance(data, weft.Dataset)
    told = dict(Dataset.load(tmp_path / "data").recorded)
    assert (told["run"], told["algorithm"], told["explore"], told["seed"]) == ("first", "ppo", True, 9)
    with pytest.raises(ConfigError, match="not empty: choose another folder"):
        weft.record(run, tmp_path / "data")
    with pytest.raises(ConfigError, match="steps must be at least 1, got 0"):
        weft.record(run, tmp_path / "other", steps=0)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ConfigError, match="loaded for its policy only"):
        dataclasses.replace(run, source=None).record(tmp_path / "other")
