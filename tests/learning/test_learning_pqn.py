"""PQN learns to a threshold, in seconds. Longer figures are in the docs."""

from __future__ import annotations

import pytest

import weft


def test_a_bandit_is_solved_at_once(tmp_path):
    from toys import Bandit

    algorithm = weft.PQN(unroll=8, hidden=(16,), learning_rate=5e-3)
    run = weft.train(algorithm, Bandit(), envs=8, steps=5_000, root=tmp_path, quiet=True, tensorboard=False, run="b")
    assert run.summary["return_mean"] > 0.9  # of random play 0.25; 0.05 of the actions stay random
    assert int(run.policy([1.0])) == 2


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["CartPole-v1", "weft:CartPole-v1"])
def test_learns(environment, tmp_path):
    run = weft.train("pqn", environment, seed=1, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["exit"] == "finished"
    assert run.summary["return_mean"] >= 450  # random play 22, the best possible 500
