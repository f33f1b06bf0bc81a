"""DQN solves a bandit in seconds, and at length, with its tuned settings, CartPole. Longer figures are in the docs."""

from __future__ import annotations

import pytest

import weft

THRESHOLDS = {  # environment, fields: steps, the return to reach (random play 22, the best possible 500)
    ("weft:CartPole-v1", "prioritised"): (200_000, 400),
    ("weft:CartPole-v1", "dueling"): (200_000, 400),
    ("CartPole-v1", ""): (150_000, 475),
    ("weft:CartPole-v1", "quantiles"): (150_000, 400),
    ("weft:CartPole-v1", "atoms"): (200_000, 475),
}


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "field"), THRESHOLDS, ids=["-".join(row) for row in THRESHOLDS])
def test_learns(environment, field, tmp_path):
    steps, threshold = THRESHOLDS[environment, field]
    fields = {field: {"quantiles": 16, "atoms": 51}.get(field, True)} if field else {}
    run = weft.train("dqn", environment, steps=steps, seed=1, root=tmp_path, quiet=True, tensorboard=False, **fields)
    assert run.summary["exit"] == "finished"
    assert run.summary["return_mean"] >= threshold


@pytest.mark.parametrize("fields", [{}, {"atoms": 11, "value_min": 0.0, "value_max": 1.0}], ids=["plain", "atoms"])
def test_a_bandit_is_solved_at_once(fields, tmp_path):
    from toys import Bandit

    sizes = {"unroll": 8, "hidden": (16,), "batch": 32, "capacity": 2048, "learning_begins": 64}
    algorithm = weft.DQN(**sizes, samples_per_insert=4.0, **fields)
    run = weft.train(algorithm, Bandit(), envs=8, steps=5_000, root=tmp_path, quiet=True, tensorboard=False, run="b")
    assert run.summary["return_mean"] > 0.9  # of random play 0.25; 0.05 of the actions stay random
    assert int(run.policy([1.0])) == 2


def test_r2d2_remembers(tmp_path):
    run = weft.train("r2d2", "weft:Memory-v0", steps=60_000, seed=1, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["return_mean"] > 0.9  # nothing without memory gets more than 0 on average
