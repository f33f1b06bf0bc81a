"""Recording: a trained policy plays in fresh environments, and its episodes become a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError
from weft.core.specs import Box
from weft.core.trees import tree_map
from weft.core.types import Timestep, Tree
from weft.data import Dataset, Episode
from weft.envs.protocol import EnvSource
from weft.runtimes.policies.evaluate import host_factory
from weft.runtimes.policies.policy import Policy

RECORDING_SEED = 2_000_003
"""Added to a seed, so that a recording has other episodes than training and evaluation have."""

STEPS_EACH = 1_000
"""Steps of an environment at least, before another one plays beside it: the last episode of each is left unfinished."""


def record_steps(
    policy: Policy, source: EnvSource, *, steps: int, seed: int, recorded: Mapping[str, Any] | None = None
) -> Dataset:
    """At least ``steps`` steps, in as many environments at a time as is sensible; blocks.

    The last episode of each environment is left where it stands. What an environment ignored or failed in is left out.
    """
    if steps < 1:
        raise ConfigError(f"steps must be at least 1, got {steps}")
    spec = source.spec
    if spec.teams:
        raise ConfigError(f"environment {spec.name!r} has several teams, and a data set is of one policy")
    envs = min(16, max(1, steps // STEPS_EACH))
    players = [_Player() for _ in range(envs)]
    env = host_factory(source)(envs, seed + RECORDING_SEED)
    try:
        timestep = timestep_buffers(spec, (envs,))
        env.reset(timestep)
        policy.reset()
        for row, player in enumerate(players):
            player.begin(timestep, row)
        for _ in range(math.ceil(steps / envs)):
            action = policy.act(timestep)
            if isinstance(spec.action, Box):  # as the environment takes them
                action = np.where(spec.action.bounded, np.clip(action, -1.0, 1.0), action)
            env.step(action, timestep)
            for row, player in enumerate(players):
                player.take(action[row], timestep, row)
    finally:
        env.close()
    found = [episode for player in players for episode in player.episodes()]
    return Dataset.from_episodes(spec, found, **(recorded or {}))


class _Player:
    """One environment's episodes, as they go on."""

    def __init__(self) -> None:
        self._done: list[list[tuple[Any, ...]]] = []
        self._ends: list[tuple[Tree, Any]] = []
        self._steps: list[tuple[Any, ...]] = []  # of the episode that goes on: what was seen, done, and came of it
        self._now: tuple[Tree, Any] = (None, None)

    def begin(self, timestep: Timestep, row: int) -> None:
        """An observation that an episode goes on from, or begins with."""
        mask = timestep.action_mask
        self._now = _row(timestep.observation, row), None if mask is None else np.array(mask[row])

    def take(self, action: Any, timestep: Timestep, row: int) -> None:
        """One step, by ``action``."""
        valid = timestep.valid is None or bool(timestep.valid[row])
        terminated, truncated = bool(timestep.terminated[row]), bool(timestep.truncated[row])
        if valid:
            self._steps.append((*self._now, np.array(action), float(timestep.reward[row]), terminated, truncated))
        if valid and (terminated or truncated):
            mask = None if self._now[1] is None else np.ones_like(self._now[1])  # nobody acts there
            self._end(_row(timestep.final_observation, row), mask)
        elif not valid:  # it began anew, without a word of how the episode before would have ended
            self._end(*self._now)
        self.begin(timestep, row)

    def _end(self, observation: Tree, mask: Any) -> None:
        if self._steps:
            self._done.append(self._steps)
            self._ends.append((observation, mask))
        self._steps = []

    def episodes(self) -> Iterator[Episode]:
        """All of them; the last one may not have ended."""
        self._end(*self._now)
        for steps, (last, last_mask) in zip(self._done, self._ends, strict=True):
            seen, masks, actions, rewards, terminated, truncated = zip(*steps, strict=True)
            yield Episode(
                tree_map(lambda *rows: np.stack(rows), *seen, last),
                np.stack(actions),
                np.array(rewards, np.float32),
                np.array(terminated, np.bool_),
                np.array(truncated, np.bool_),
                None if last_mask is None else np.stack([*masks, last_mask]),
            )


def _row(tree: Tree, row: int) -> Tree:
    return tree_map(lambda x: np.array(x[row]), tree)
