"""A policy answers in the environment's own units."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

import weft


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
