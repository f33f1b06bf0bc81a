"""Samples that can be told apart over several hosts, and what must hold of those that a learner is given.

``Numbered`` shows the id of each sample, ``(process, environment, sequence)``; ``Checked`` is PPO with a fragment
before learn that writes down the ids it is given, in the folder that ``WEFT_CHECKED`` names. ``WEFT_PACE``: seconds
that a step waits. All hosts must see the folder, and number their processes alike, as network namespaces of one machine
do.
"""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import weft

_INDEX = count()


def _folder() -> Path:
    folder = Path(os.environ["WEFT_CHECKED"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Numbered(gym.Env[Any, Any]):
    """Every observation is an id of its own; episodes of 13 steps."""

    observation_space = gym.spaces.Box(0, 2**31 - 1, (3,), np.int32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._id, self._sequence, self._time = (os.getpid(), next(_INDEX)), 0, 0
        self._pace = float(os.environ.get("WEFT_PACE", "0"))
        worker = Path(os.readlink("/proc/self/fd/1")).stem  # a worker's output is its log
        (_folder() / f"life-{os.getpid()}").write_text(f"{worker} {time.monotonic_ns()}")

    def _next(self) -> Any:
        self._sequence += 1
        return np.array([*self._id, self._sequence], np.int32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._time = 0
        return self._next(), {}

    def step(self, action: Any) -> Any:
        """Wait, and show the next id."""
        if self._pace:
            time.sleep(self._pace)
        self._time += 1
        return self._next(), 1.0, self._time == 13, False, {}


class Checked(weft.PPO):
    """PPO that writes down what it learns from."""

    def graph(self) -> Any:
        """With ``checker`` before learn."""
        return super().graph().insert("checker", self._check, host=True)

    def _check(self, state: Any, unroll: Any) -> Any:
        ids = np.asarray(unroll.observation, np.int32).reshape(-1, 3)
        with (_folder() / f"eaten-{os.getpid()}").open("ab") as file:
            file.write(ids.tobytes())
        return state, unroll


class Findings(NamedTuple):
    """What learners were given."""

    given: int  # ids, over all lives of the learner
    late: int  # within one life: of an environment that had shown a later one before
    twice: int  # within one life: given again
    again: int  # to a later life too, which goes on from a checkpoint
    lives: int  # processes that stepped environments
    learners: int


def found(folder: Path) -> Findings:
    """Look at every id."""
    lives = {int(path.name[5:]): path.read_text().split() for path in folder.glob("life-*")}
    began = {pid: int(told[1]) for pid, told in lives.items()}
    worker = {pid: told[0] for pid, told in lives.items()}
    late = twice = given = 0
    distinct: list[Any] = []
    for path in folder.glob("eaten-*"):
        ids = np.frombuffer(path.read_bytes(), np.int32).reshape(-1, 3)
        newest: dict[tuple[str, int], tuple[int, int]] = {}
        for pid, index, sequence in ids.tolist():
            place, moment = (worker[pid], index), (began[pid], sequence)
            before = newest.get(place, (-1, -1))
            late += moment < before
            newest[place] = max(before, moment)
        unique = np.unique(ids, axis=0)
        given, twice = given + len(ids), twice + len(ids) - len(unique)
        distinct.append(unique)
    everything = np.concatenate(distinct) if distinct else np.zeros((0, 3), np.int32)
    again = len(everything) - len(np.unique(everything, axis=0))
    return Findings(given, late, twice, again, len(lives), len(distinct))
