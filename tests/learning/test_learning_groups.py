"""Groups of agents: what QMIX finds in the two-step game, and VDN and independent PPO do not."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def trained(algorithm, tmp_path, seeds, *, actions=2, **asked):
    """What the policy of each of several seeds is paid, without exploration."""
    run = weft.train(
        algorithm, "weft:TwoStep-v0", env_options={"actions": actions}, seeds=seeds, root=tmp_path, quiet=True,
        tensorboard=False, **asked,
    )  # fmt: skip
    return [paid(run.policy_for(seed), actions) for seed in range(seeds)], run.summary


def paid(policy, actions):
    room = np.eye(3, dtype=np.float32)

    def acts(where):
        return np.asarray(policy({"agents": np.stack([room[where]] * 2), "state": room[where]})) == actions - 1

    game = 1 + int(acts(0)[0])
    return 7 if game == 1 else [0, 1, 8][int(acts(game).sum())]


@pytest.mark.slow
def test_where_all_actions_are_tried_alike_qmix_finds_the_best_and_vdn_does_not(tmp_path):
    """The experiment of the QMIX paper: with two actions, explored at random to the end."""
    asked = {"seeds": 3, "steps": 10_000, "epsilon_end": 1.0}
    assert trained("qmix", tmp_path / "qmix", **asked)[0] == [8, 8, 8]
    assert trained("vdn", tmp_path / "vdn", **asked)[0] == [7, 7, 7]


def test_qmix_finds_the_best_among_eight_actions(tmp_path):
    """Random play in the risky game is paid 0.34."""
    found, summary = trained("qmix", tmp_path / "qmix", 1, actions=8)
    assert found == [8]
    assert summary["return_mean"] > 7.2  # 1 action in 20 is random, in what may cost 8 each time


@pytest.mark.slow
def test_independent_ppo_does_not(tmp_path):
    """It leaves the risky game before it has learned to play it."""
    ppo = weft.PPO(unroll=16, hidden=(32,), minibatches=2, learning_rate=2e-3)
    _, summary = trained(ppo, tmp_path / "ppo", 5, actions=8, envs=16, steps=40_000)
    assert [one["return_mean"] for one in summary["seeds"]] == [7.0] * 5
