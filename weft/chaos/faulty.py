"""An environment around another that raises in a share of its steps: what ``raise`` does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from weft.core.errors import ConfigError
from weft.envs.registry import open_environment
from weft.envs.vectoriser import VectoriserFactory


class InjectedFault(RuntimeError):
    """Raised on purpose."""


class Faulty(gym.Wrapper[Any, Any, Any, Any]):
    """Raises in a share ``rate`` of its steps, drawn from the seed of its resets."""

    def __init__(self, env: gym.Env[Any, Any], rate: float) -> None:
        super().__init__(env)
        self._rate, self._draw = rate, np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset what is inside."""
        if seed is not None:
            self._draw = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Step what is inside, or raise InjectedFault."""
        if self._draw.random() < self._rate:
            raise InjectedFault("weft chaos made this step fail")
        return self.env.step(action)


def faulty(inner: str, rate: float = 0.0, **options: Any) -> gym.Env[Any, Any]:
    """The environment ``inner`` with its options, failing in a share ``rate`` of its steps."""
    source = open_environment(inner, vector="each", **options)
    if not isinstance(source.host, VectoriserFactory):
        raise ConfigError(f"{inner!r} is not stepped on the host one by one: it cannot be made to raise")
    return Faulty(source.host.make(False), rate)
