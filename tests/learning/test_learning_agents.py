"""PPO for every agent of a group, with its tuned settings, learns to a threshold in seconds. Longer: the docs."""

from __future__ import annotations

import json

import pytest

import weft
from weft.envs.builtin.hide_and_seek import HideAndSeek
from weft.envs.builtin.tag import Tag


@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "mappo"])
def test_three_agents_learn_to_spread(tmp_path, algorithm):
    """Random play gives an agent -26, and agents that go straight to the best landmarks -8."""
    run = weft.train(algorithm, "weft:Spread-v0", steps=80_000, seed=1, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["exit"] == "finished"
    assert run.summary["return_mean"] >= -22


@pytest.mark.slow
def test_adversaries_learn_to_catch_agents_that_leave_when_caught(tmp_path):
    """Random adversaries get 3.5 from random agents; 20 is what two agents give that are touched by one each."""
    env = Tag(adversaries=3, agents=2, leave=True)
    run = weft.train("ppo", env, steps=24_000, seed=1, root=tmp_path, run="tag", quiet=True, tensorboard=False)
    assert run.summary["exit"] == "finished"
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["return_mean/adversary"] >= 7


@pytest.mark.slow
def test_entities_with_masks_can_be_learned_from(tmp_path):
    """Two updates from nested observations; what each team gets the other loses."""
    env, sizes = HideAndSeek(horizon=10), {"envs": 8, "steps": 160, "unroll": 10, "minibatches": 2}
    run = weft.train("ppo", env, seed=1, root=tmp_path, run="hide", quiet=True, tensorboard=False, **sizes)
    assert run.summary["exit"] == "finished"
    assert run.summary["learn_steps"] == 2
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["return_mean/hider"] == -last["return_mean/seeker"] != 0
