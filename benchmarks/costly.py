"""Environments whose step costs a known time, for every system alike: 1 ms of a core, or 1 ms of waiting.

Needs Gymnasium (0.29 or 1.x) and NumPy alone: peers make them from their own environments. Weft knows them as
``benchmarks.costly:burning`` and ``benchmarks.costly:sleeping``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np

COST_SECONDS = 1e-3
EPISODE_STEPS = 200

Observation = np.ndarray[Any, np.dtype[np.float32]]


class Costly(gym.Env[Observation, np.int64], ABC):
    """Four random numbers, two actions, episodes of 200 steps; the right action is the sign of the first number.

    ``step`` blocks for what :meth:`pay` takes; ``reset`` costs nothing.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium has it so)

    def __init__(self, seconds: float = COST_SECONDS) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.seconds = seconds
        self._steps = 0
        self._observation = np.zeros(4, np.float32)

    @abstractmethod
    def pay(self) -> None:
        """Spend ``seconds`` in the way that the class is about; blocks meanwhile."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Pay, and look at the next four numbers. The 200th step terminates: nothing follows, nobody bootstraps."""
        self.pay()
        reward = float(bool(action) == bool(self._observation[0] > 0))
        self._steps += 1
        return self._observe(), reward, self._steps >= EPISODE_STEPS, False, {}

    def _observe(self) -> Observation:
        self._observation = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        return self._observation


class Burning(Costly):
    """A step keeps a core busy for 1 ms of CPU time, however many others want that core: a simulator's physics, say.

    Measured by the thread's own CPU clock, so that a step that is interrupted takes longer, as real work would.
    """

    def pay(self) -> None:
        """Compute nothing until the thread has used its time."""
        end = time.thread_time_ns() + round(self.seconds * 1e9)
        while time.thread_time_ns() < end:
            pass


class Sleeping(Costly):
    """A step waits for 1 ms (and some tens of µs until the kernel wakes it) and needs no core: a game server, say."""

    def pay(self) -> None:
        """Wait."""
        time.sleep(self.seconds)


class Filming(gym.Env[np.ndarray[Any, np.dtype[np.uint8]], np.int64]):
    """Four frames of 84 × 84 a step, as Atari gives them, for ``seconds`` of CPU time; episodes of 200 steps."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium has it so)

    def __init__(self, seconds: float = COST_SECONDS / 2) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gym.spaces.Discrete(6)
        self.seconds = seconds
        self._steps, self._bright = 0, 0
        self._frames = np.zeros((84, 84, 4), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pay, and draw the next frames; the right action is the brightness."""
        end = time.thread_time_ns() + round(self.seconds * 1e9)
        reward = float(int(action) == self._bright)
        self._steps += 1
        seen = self._observe()
        while time.thread_time_ns() < end:
            pass
        return seen, reward, self._steps >= EPISODE_STEPS, False, {}

    def _observe(self) -> Any:
        self._bright = int(self.np_random.integers(6))
        self._frames[:] = 40 * self._bright
        return self._frames


def filming() -> Filming:
    """One environment."""
    return Filming()


def burning() -> Burning:
    """One environment."""
    return Burning()


def sleeping() -> Sleeping:
    """One environment."""
    return Sleeping()


def make(name: str) -> gym.Env[Any, Any]:
    """``burning``, ``sleeping``, or a Gymnasium id, without Gymnasium's checks of every step, as Weft makes it."""
    factories = {"burning": burning, "sleeping": sleeping, "filming": filming}
    return factories[name]() if name in factories else gym.make(name, disable_env_checker=True)
