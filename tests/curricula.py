"""Environments whose difficulty is an option, and rules that set it: importable, as workers need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.protocol import Transition


@dataclass(frozen=True)
class Marked:
    """Episodes of 4 steps; the observation and the reward are the option ``mark`` that the episode began with."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("Marked", Box((1,)), Discrete(2), pure=True, max_episode_steps=4)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        return self.reset_with(key, {"mark": jnp.float32(0.0)})

    def reset_with(self, key: jax.Array, options: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        return (options["mark"], jnp.int32(0)), options["mark"].reshape(1)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, Transition]:
        mark, time = state
        no = jnp.zeros((), jnp.bool_)
        return (mark, time + 1), Transition(mark.reshape(1), mark, no, time + 1 >= 4)


class MarkedGym(gym.Env[Any, Any]):
    """The same for the host, told by ``reset(options=...)``."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.mark, self.time = 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.mark, self.time = (options or {}).get("mark", 0.0), 0
        return np.array([self.mark], np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([self.mark], np.float32), self.mark, False, self.time >= 4, {}


def rise(found: Mapping[str, float] | None, options: Mapping[str, float]) -> Mapping[str, float]:
    """One more after each evaluation, which must have been of the options of now: a return of 4 marks."""
    if found is None:
        return {"mark": 1.0}
    return {"mark": found["eval/return_mean"] / 4 + 1.0}


def forgetful(found: Mapping[str, float] | None, options: Mapping[str, float]) -> Mapping[str, float]:
    """Gives other options than it began with."""
    return {"mark": 1.0} if found is None else {"size": 2.0}
