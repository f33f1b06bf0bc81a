"""Whether an environment's observations are stacks of its newest frames, as it or a wrapper says."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from weft.core.specs import FrameStack

_PADDING = {"zero": "zeros", "reset": "first"}


def frames_of(env: Any) -> FrameStack | None:
    """The stack that an environment shows: ``frames`` of the environment, or of Gymnasium's ``FrameStackObservation``.

    It is looked for under wrappers that leave observations alone; under any other they may be something else.
    """
    while isinstance(env, gym.Wrapper) and type(env).__name__ in _HARMLESS:
        env = env.env
    if isinstance(env, gym.wrappers.FrameStackObservation):
        padding = _PADDING.get(str(env.padding_type))
        space = env.observation_space
        if padding is None or not isinstance(space, gym.spaces.Box) or env.stack_size < 2:
            return None
        return FrameStack(env.stack_size, 0, padding)
    said = getattr(env, "__dict__", {}).get("frames")
    return said if isinstance(said, FrameStack) else None


_HARMLESS = ("Autoreset", "OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "TimeLimit")
