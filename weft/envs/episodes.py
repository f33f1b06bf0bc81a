"""What brings a host environment back to where it stood: the generator before its reset, and its actions since.

Gymnasium environments cannot be copied or saved, but those that draw from ``np_random`` alone can be replayed. The log
costs one append for a batch step, and one copy of the generator's state for an episode.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import THEIRS

LONGEST = 100_000
"""Episodes with more steps than this are not kept, and cannot be brought back exactly."""

GeneratorState: TypeAlias = dict[str, Any]


def generator_state(env: gym.Env[Any, Any]) -> GeneratorState | None:
    """The state of the environment's own generator; None where it has none that NumPy could restore."""
    try:
        state: GeneratorState = dict(env.np_random.bit_generator.state)
    except (AttributeError, TypeError):
        return None
    return state


def generator_digest(env: gym.Env[Any, Any]) -> int:
    """32 bits that tell the generator's state from others."""
    return zlib.crc32(repr(plain(generator_state(env))).encode())


def plain(value: Any) -> Any:
    """Nested dicts, lists and arrays as JSON has them."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def replay(
    env: gym.Env[Any, Any], saved: Mapping[str, Any], revive: Callable[[Any], Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Bring ``env`` to where the episode in ``saved`` stood: its (observation, info), or None where that cannot be.

    ``saved`` has ``seed``, ``generator`` and ``actions``, and where dials set them ``options``; ``revive`` makes an
    action of its JSON.
    """
    if saved["actions"] is None:
        return None
    try:
        options = saved.get("options")
        observation, info = env.reset(seed=int(saved["seed"]), options=options)
        if saved["generator"] is not None:
            env.unwrapped.np_random.bit_generator.state = saved["generator"]
            observation, info = env.reset(options=options)
        for done, action in enumerate(saved["actions"]):  # noqa: B007  ``done`` is read from outside: whereabouts.py
            observation, _, terminated, truncated, info = env.step(revive(action))
            if terminated or truncated:
                return None
    except THEIRS:  # an environment that cannot be replayed begins anew, and is reported
        return None
    return observation, info


class EpisodeLog:
    """The actions of ``num_envs`` environments in their current episodes.

    Kept a batch at a time (``actions``, to which the vectoriser appends), since an append for every
    environment would cost as much as the rest of the loop.
    """

    def __init__(self, num_envs: int, longest: int = LONGEST) -> None:
        self.actions: list[Any] = []  # one batch of native actions for each step; indexed by row
        self._longest = longest
        self._dropped = 0  # batches that are no longer in ``actions``
        self._starts = [0] * num_envs  # when each row's episode began, counted in batches
        self._before: list[list[Any]] = [[] for _ in range(num_envs)]  # actions that a restore replayed
        self._states: list[GeneratorState | None] = [None] * num_envs
        self._trim_at = 1024

    def begin(self, row: int, state: GeneratorState | None, before: list[Any] | None = None) -> None:
        """Row ``row`` starts an episode now, from a reset with the generator in ``state`` (None: from its seed)."""
        self._starts[row] = self._dropped + len(self.actions)
        self._states[row] = state
        self._before[row] = before or []

    def trim(self) -> None:
        """Forget what no current episode needs. Call it now and then; does nothing until there is enough."""
        if len(self.actions) < self._trim_at:
            return
        unused = max(min(self._starts) - self._dropped, len(self.actions) - self._longest)
        if unused > 0:
            del self.actions[:unused]
            self._dropped += unused
        self._trim_at = len(self.actions) + 1024

    def row(self, row: int) -> tuple[GeneratorState | None, list[Any] | None]:
        """What began row ``row``'s episode, and its native actions since as JSON; None where it has been too long."""
        first = self._starts[row] - self._dropped
        if first < 0 or len(self._before[row]) + len(self.actions) - first > self._longest:
            return plain(self._states[row]), None
        since = [plain(batch[row]) for batch in self.actions[first:]]
        return plain(self._states[row]), self._before[row] + since
