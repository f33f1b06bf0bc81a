"""What a user might have in the folder they work in: environments and algorithms that misbehave, one way each.

Copied next to the runs by the fixtures, and imported from there by name.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import weft


class Walk(gym.Env):
    """Nothing is wrong with this one: episodes of 10 steps, reward 1."""

    made = 0
    steps_of_all = 0
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init_subclass__(cls) -> None:
        cls.made = cls.steps_of_all = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = render_mode
        self.index = type(self).made
        type(self).made += 1
        self.steps = 0
        self.total = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.total += 1
        type(self).steps_of_all += 1
        self.happen()
        return np.zeros(4, np.float32), self.reward(), self.steps >= 10, False, {}

    def happen(self) -> None:
        pass

    def reward(self) -> float:
        return 1.0

    def render(self) -> Any:
        return np.full((11, 21, 3), 10 * self.steps, np.uint8)


class Alternate(Walk):
    """Reward 1 where the action is another than the one before, which cannot be seen."""

    before = None

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        reward, self.before = float(self.before is not None and action != self.before), action
        return observation, reward, *rest

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.before = None
        return super().reset(seed=seed)


def _maker() -> Any:
    def inside() -> Walk:
        return Walk()

    return inside


nameless = _maker()  # it makes environments, but no other process could import it by a name


class RaisesInStep(Walk):
    def happen(self) -> None:
        if self.index == 3 and self.total == 7:  # the first that is made only tells its spaces
            raise ValueError("the arm fell off")


class RaisesInReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise ValueError("no floor to stand on")


class RaisesWhenMade(Walk):
    def __init__(self) -> None:
        raise ValueError("no licence")


class Leaves(Walk):
    def happen(self) -> None:
        raise SystemExit("no display")


class LeavesLater(Walk):
    def happen(self) -> None:
        if self.index == 3 and self.total == 7:
            sys.exit()


class LeavesInReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        sys.exit(0)


class LeavesWhenMade(Walk):
    def __init__(self) -> None:
        sys.exit(3)


class LeavesWhenClosed(Walk):
    def close(self) -> None:
        sys.exit()


class IsInterrupted(Walk):
    def happen(self) -> None:
        raise KeyboardInterrupt


class NotANumber(Walk):
    def reward(self) -> float:
        return float("nan") if self.index == 2 and self.total == 5 else 1.0


class Spread(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(3, np.float32), {}


class LiesLater(Walk):
    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation[:3] if self.total > 6 else observation), *rest


class Chatters(Walk):
    def happen(self) -> None:
        print("hello from Python")
        ctypes.CDLL(None).puts(b"hello from C")
        warnings.warn("a warning", stacklevel=2)


class Interrupts(Walk):
    """Ctrl-C while it trains, at its 17th step of all: in the second learn call of runs with 4 times 4 steps."""

    signals = (signal.SIGINT,)

    def happen(self) -> None:
        if type(self).steps_of_all == 18:  # one more was made to tell its spaces
            for number in self.signals:
                os.kill(os.getpid(), number)


class InterruptsTwice(Interrupts):
    signals = (signal.SIGINT, signal.SIGINT)


class Terminates(Interrupts):
    signals = (signal.SIGTERM,)


class FillsTheDisk(Walk):
    """From its 17th step of all on, no file grows beyond one byte; from the 49th on, they do again."""

    until = 49

    def happen(self) -> None:
        at = type(self).steps_of_all - 1
        if at in (17, self.until):
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 if at == 17 else hard, hard))


class FillsTheDiskForGood(FillsTheDisk):
    until = 10**9


@dataclass(frozen=True)
class JaxNotANumber:
    """In JAX: the reward is NaN from the third step of an episode on."""

    spec = weft.EnvSpec("nan", weft.Box((2,)), weft.Discrete(2), pure=True)

    def reset(self, key: Any) -> Any:
        import jax.numpy as jnp

        return jnp.int32(0), jnp.zeros(2)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        import jax.numpy as jnp

        state = state + 1
        reward = jnp.where(state < 3, 1.0, jnp.nan)
        no = jnp.zeros((), bool)
        return state, weft.Transition(jnp.zeros(2), reward, no, no)


class JaxRaises(JaxNotANumber):
    def step(self, state: Any, action: Any, key: Any) -> Any:
        raise ValueError("cannot be traced")


class Custom(weft.PPO):
    """An algorithm of one's own that is fine."""


@dataclass(frozen=True)
class Sized(weft.PPO):
    sizes: tuple[float, ...] = (1.0, 2.0)  # what they are
    depth: int | None = None  # how deep, 100% of the time
    table: dict[str, int] | None = None


class RaisesInLearn(weft.PPO):
    def learn(self, state: Any, batch: Any) -> Any:
        raise KeyError("my mistake")


NOT_A_CLASS = 3
