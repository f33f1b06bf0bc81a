"""Agents that share a policy learn in a host environment to a threshold, in seconds."""

from __future__ import annotations

import functools

import zoo

import weft


def test_agents_that_die_learn_what_pays(tmp_path) -> None:
    """Two hens, one for 2 steps and one for 3, each paid by its action: 1 to 3, and the second 10 more.

    The best is (2 * 3 + 3 * 13) / 2 = 22.5 and random play gives 20 on average.
    """
    meadow = functools.partial(zoo.Meadow, 2, length=8, leaves={"hen_0": 2, "hen_1": 3})
    ppo = weft.PPO(unroll=16, learning_rate=3e-3, hidden=(16,))
    settings = {"root": tmp_path, "quiet": True, "tensorboard": False}
    run = weft.train(ppo, meadow, envs=8, steps=16 * 8 * 40, seed=1, run="hens", **settings)
    assert run.summary["return_mean"] >= 22.2
