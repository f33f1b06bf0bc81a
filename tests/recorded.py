"""Data sets for tests: of policies that are written down, played in Gymnasium's environments, which is quick."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from weft.core.specs import Box, EnvSpec
from weft.data import Dataset, Episode
from weft.data.minari import to_policy
from weft.envs.registry import open_environment


def play(environment: str, policy: Callable[[Any, Any], Any], steps: int, seed: int = 0) -> list[Episode]:
    """Whole episodes of a policy that is given an observation and a generator, and acts in the environment's units."""
    spec, random = open_environment(environment).spec, np.random.default_rng(seed)
    env, found, count = gym.make(environment), [], 0
    while count < steps:
        observation, _ = env.reset(seed=seed + len(found))
        seen, rows = [observation], []
        while not rows or not (rows[-1][2] or rows[-1][3]):
            action = policy(observation, random)
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append(observation)
            rows.append((action, float(reward), terminated, truncated and not terminated))
        actions, rewards, terminations, truncations = zip(*rows, strict=True)
        count += len(rows)
        flags = np.array(terminations, np.bool_), np.array(truncations, np.bool_)
        native = to_policy(np.array(actions), spec)
        found.append(Episode(np.stack(seen).astype(np.float32), native, np.array(rewards, np.float32), *flags))
    env.close()
    return found


def balance(observation: Any, random: Any = None) -> int:
    """A good policy for CartPole: 500."""
    return int(observation @ np.array([0.1, 0.3, 3.0, 1.0]) > 0)


def mostly_wrong(observation: Any, random: Any) -> int:
    """The opposite of it, nine times in ten: about 10."""
    right = balance(observation)
    return right if random.random() < 0.1 else 1 - right


def any_action(spec: EnvSpec) -> Callable[[Any, Any], Any]:
    """Random play."""
    space: Any = spec.native_action
    if isinstance(space, Box):
        return lambda observation, random: random.uniform(space.low, space.high, space.shape).astype(np.float32)
    return lambda observation, random: int(random.integers(space.n))


@cache
def folder_of(environment: str) -> str:
    """A data set in a folder that goes with this process: of good play in CartPole, of random play elsewhere."""
    folder = Path(tempfile.mkdtemp()) / "data"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    spec = open_environment(environment).spec
    policy, steps = (balance, 3_000) if "CartPole" in environment else (any_action(spec), 400)
    return str(Dataset.from_episodes(spec, play(environment, policy, steps)).save(folder))
