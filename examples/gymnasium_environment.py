"""Another environment: a Gymnasium one of your own, made by a function.

python examples/gymnasium_environment.py
weft train ppo examples.gymnasium_environment:make_docking --steps 100_000 --env.limit 60
"""

from typing import Any

import gymnasium as gym
import numpy as np

import weft


class Docking(gym.Env[np.ndarray, int]):
    """Bring a ship on a line to rest at 0, by thrust to the left, none, or to the right.

    Each step costs the distance to 0. Docked (close and slow): terminated, for nothing more can be lost. Out of time:
    truncated, for it would have cost more.
    """

    def __init__(self, limit: int = 60) -> None:
        self.limit = limit
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)  # draw from self.np_random: that is what makes a run repeatable
        self.time, self.position, self.speed = 0, self.np_random.uniform(-1.0, 1.0), 0.0
        return self._look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.time += 1
        self.speed += 0.05 * (action - 1)
        self.position += self.speed
        docked = abs(self.position) < 0.1 and abs(self.speed) < 0.075
        return self._look(), -abs(self.position), docked, self.time >= self.limit, {}

    def _look(self) -> np.ndarray:
        return np.array([self.position, self.speed], np.float32)


def make_docking(limit: int = 60) -> gym.Env:
    """A new environment at each call: every row of a batch has its own."""
    return Docking(limit)


def main(steps: int = 200_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98)
    run = weft.train(ppo, make_docking, envs=32, steps=steps, run="gymnasium-environment", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
