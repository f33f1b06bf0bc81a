"""Samples that can be told apart, as a user's module: what was made and what was learned from is kept in files.

``Numbered`` shows the id of each sample, ``(process, environment, sequence)``, and counts its steps in a file that
outlives kill -9. ``Checked`` is PPO with a fragment before learn that writes down the ids it is given.
"""

from __future__ import annotations

import mmap
import os
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import weft

FOLDER = Path("checker")
_INDEX = count()


class Numbered(gym.Env):
    """Every observation is an id of its own; episodes of 13 steps."""

    observation_space = gym.spaces.Box(0, 2**31 - 1, (3,), np.int32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        self._id, self._sequence, self._time = (os.getpid(), next(_INDEX)), 0, 0
        path = FOLDER / f"made-{self._id[0]}-{self._id[1]}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._made = np.frombuffer(mmap.mmap(file.fileno(), 8), np.int64)

    def _next(self) -> Any:
        self._sequence += 1
        return np.array([*self._id, self._sequence], np.int32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self._next(), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        self._made[0] += 1
        return self._next(), 1.0, self._time == 13, False, {}


class Checked(weft.PPO):
    """PPO that writes down what it learns from."""

    def graph(self) -> Any:
        return super().graph().insert("checker", self._check, host=True)

    def _check(self, state: Any, unroll: Any) -> Any:
        FOLDER.mkdir(exist_ok=True)
        ids = np.asarray(unroll.observation, np.int32).reshape(-1, 3)
        with (FOLDER / f"eaten-{os.getpid()}").open("ab") as file:
            file.write(ids.tobytes())
        return state, unroll


def made(folder: Path) -> int:
    """Steps that environments have made, those of killed processes too; the probe's are not counted."""
    return sum(int(np.frombuffer(path.read_bytes(), np.int64)[0]) for path in (folder / FOLDER).glob("made-*"))


def eaten(folder: Path) -> dict[str, np.ndarray]:
    """The ids that each process was given to learn from, ``[n, 3]`` in order."""
    return {
        path.name: np.frombuffer(path.read_bytes(), np.int32).reshape(-1, 3)
        for path in (folder / FOLDER).glob("eaten-*")
    }
