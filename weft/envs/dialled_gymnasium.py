"""Gymnasium environments whose ``reset`` is given the options that dials show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym

from weft.core.errors import ConfigError
from weft.envs.dials import Dials
from weft.envs.protocol import EnvSource, HostFactory
from weft.envs.rows import MakeEnv
from weft.envs.vectoriser import VectoriserFactory


class Dialled(gym.Wrapper[Any, Any, Any, Any]):
    """``reset(options=...)`` of what it wraps gets the dials' values; ``began_with`` are those of this episode."""

    def __init__(self, env: gym.Env[Any, Any], dials: Dials) -> None:
        super().__init__(env)
        self._dials, self.began_with = dials, dials.now()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the environment's; ``options`` are given where an episode is replayed."""
        self.began_with = self._dials.now() if options is None else dict(options)
        return self.env.reset(seed=seed, options=dict(self.began_with))


def dialled_factory(source: EnvSource, dials: Dials) -> HostFactory:
    """A source's factory, with dials. Raises ConfigError where its environments are not made one by one."""
    factory = source.host
    if not isinstance(factory, VectoriserFactory):
        raise ConfigError(
            f"environment {source.name!r} comes in whole batches, or has several agents: a curriculum sets options of "
            "JAX environments and of single Gymnasium environments. Use vector='each' where it can be."
        )
    make: MakeEnv = factory.make
    return replace(factory, make=lambda render: Dialled(make(render), dials))
