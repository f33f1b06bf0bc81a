"""A policy answers in the environment's own units."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError
from weft.envs.registry import open_environment


class Shifted(gym.Env):
    """Actions 5 to 7, and nothing to do."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(2, np.float32), float(np.sum(action)), False, True, {}


class Grid(Shifted):
    action_space = gym.spaces.MultiDiscrete([[2, 3], [2, 2]])


def small(env, tmp_path):
    algorithm = weft.PPO(unroll=8, minibatches=1, hidden=(8,))
    return weft.train(algorithm, env, steps=64, envs=4, root=tmp_path, quiet=True, tensorboard=False)


def test_a_discrete_space_that_starts_elsewhere(tmp_path):
    action = small(Shifted, tmp_path).policy(np.zeros(2, np.float32))
    assert Shifted.action_space.contains(np.int64(action))


def test_a_multi_discrete_space_of_several_axes(tmp_path):
    run = small(Grid, tmp_path)
    assert run.policy(np.zeros(2, np.float32)).shape == (2, 2)
    assert run.policy(np.zeros((5, 2), np.float32)).shape == (5, 2, 2)


def test_a_jax_environment_cannot_be_made_alone():
    """``weft.make`` gives a gymnasium.Env, or says why not."""
    source = open_environment("weft:CartPole-v1")
    run = weft.Run(Path("runs/one"), weft.PPO(), {}, {}, source=source)
    with pytest.raises(ConfigError, match=r"'weft:CartPole-v1' is in JAX.*weft.evaluate\(run\) plays it"):
        weft.make(run)


@pytest.mark.parametrize("vector", ["native", "each"])
def test_an_environment_is_made_as_the_policy_saw_it(vector):
    source = open_environment("CartPole-v1", vector=vector, sutton_barto_reward=True)
    env = weft.make(weft.Run(Path("runs/one"), weft.PPO(), {}, {}, source=source), render=True)
    assert env.unwrapped._sutton_barto_reward
    assert env.render_mode == "rgb_array"
    env.close()


def test_a_run_is_shown_in_one_line():
    summary = {"algorithm": "ppo", "environment": "CartPole-v1", "env_steps": 300_032, "return_mean": 499.96}
    run = weft.Run(Path("runs/first"), weft.PPO(), {"weights": np.zeros(1000)}, {**summary, "exit": "finished"})
    assert repr(run) == "Run('runs/first': ppo in CartPole-v1, 300,032 env steps, return 500.0)"
    stopped = weft.Run(Path("runs/b"), weft.PPO(), {}, {**summary, "return_mean": None, "exit": "interrupted"}, seeds=3)
    assert repr(stopped) == "Run('runs/b': ppo in CartPole-v1, 300,032 env steps, 3 seeds, interrupted)"
    assert repr(weft.Run(Path("runs/c"), weft.PPO(), {}, {"seed": 1})) == "Run('runs/c': no summary yet)"
