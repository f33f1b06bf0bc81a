"""A Gymnasium environment for tests: it does what it is told, and what it shows says which episode and step it is in.

Open it by name, ``weft.envs.fake:ScriptedEnv``, or make your own with other spaces or other faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np


class ScriptedEnv(gym.Env[Any, Any]):
    """Episodes of ``length`` steps, ended by ``ends`` ("terminated" or "truncated"); the reward is the step's number.

    With the default space (``Box[3]``) an observation is ``[noise, episode, step]``, the noise drawn from
    ``np_random``; with another it is a sample of that space, drawn from ``np_random`` too. ``observe(env)`` replaces
    either; ``act(env, action)`` is called before each step, to record or to raise; ``reward(env)`` replaces the
    reward; ``mask(env)`` gives ``info["action_mask"]``.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012  as Gymnasium has it

    def __init__(
        self,
        length: int = 5,
        ends: str = "terminated",
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        observe: Callable[[ScriptedEnv], Any] | None = None,
        act: Callable[[ScriptedEnv, Any], None] | None = None,
        reward: Callable[[ScriptedEnv], Any] | None = None,
        mask: Callable[[ScriptedEnv], Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.length, self.ends, self.render_mode = length, ends, render_mode
        default = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space = default if observation_space is None else observation_space
        self.action_space = gym.spaces.Discrete(2) if action_space is None else action_space
        self._default = observation_space is None
        self._observe, self._act, self._reward, self._mask = observe, act, reward, mask
        self.episode, self.t, self.total = -1, 0, 0
        self.seeds: list[int | None] = []
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The next episode; with a seed, the first."""
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.t = (0 if seed is not None else self.episode + 1), 0
        return self._look(), self._info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the action must be of the space, and matters only to ``act``."""
        if not self.action_space.contains(action):
            raise gym.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        if self._act is not None:
            self._act(self, action)
        self.t, self.total = self.t + 1, self.total + 1
        ended = self.t >= self.length
        reward = float(self.t) if self._reward is None else self._reward(self)
        flags = (ended and self.ends == "terminated", ended and self.ends == "truncated")
        return self._look(), reward, *flags, self._info()

    def render(self) -> Any:
        """A grey image, the brighter the later in the episode."""
        return np.full((8, 8, 3), 10 * self.t, np.uint8)

    def close(self) -> None:
        """Count the calls."""
        self.closed += 1

    def _look(self) -> Any:
        if self._observe is not None:
            return self._observe(self)
        if self._default:
            return np.array([self.np_random.random(), self.episode, self.t], np.float32)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def _info(self) -> dict[str, Any]:
        return {} if self._mask is None else {"action_mask": self._mask(self)}
