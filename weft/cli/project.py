"""The files of a new project, as ``weft init`` writes them; PACKAGE stands for its package."""

from __future__ import annotations

ENVIRONMENT = '''"""An environment of your own: walk along a corridor to the door at its end."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Ten cells; 0 steps left, 1 steps right; the door at the right end pays 1, each step costs 0.01."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.place = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(0, self.length // 2))
        return self._seen(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        door = self.place >= self.length - 1
        return self._seen(), 1.0 if door else -0.01, door, False, {}

    def _seen(self):
        return np.array([self.place / self.length], np.float32)
'''

NETWORK = '''"""A network of your own, and PPO with it: weft train PACKAGE.network:Mine PACKAGE.environment:Corridor"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

SEEN, WIDTH, ACTIONS = 1, 32, 2


def init(key):
    """Fresh params."""
    first, second = jax.random.split(key)
    return {"in": jax.random.normal(first, (SEEN, WIDTH)), "out": 0.1 * jax.random.normal(second, (WIDTH, ACTIONS + 1))}


def apply(params, observation):
    """Logits [2] and a value [] for one observation [1]; Weft batches it."""
    out = jnp.tanh(observation @ params["in"]) @ params["out"]
    return out[:ACTIONS], out[ACTIONS]


@dataclass(frozen=True)
class Mine(weft.PPO):
    """PPO with that network; its fields are flags: --algo.learning-rate 1e-3."""

    network: Any = (init, apply)
    unroll: int = 32
    learning_rate: float = 2e-3
'''

TEST = '''"""python -m pytest"""

import weft
from gymnasium.utils.env_checker import check_env

from PACKAGE.environment import Corridor
from PACKAGE.network import Mine


def test_the_environment_keeps_gymnasiums_contract():
    check_env(Corridor(), skip_render_check=True)


def test_the_way_out_is_learned(tmp_path):
    run = weft.train(Mine(), Corridor, envs=8, steps=16_384, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["return_mean"] > 0.8
'''

README = """# PACKAGE

A project with Weft: an environment, a network and a test of your own.

| file | what |
|---|---|
| `PACKAGE/environment.py` | `Corridor`, a Gymnasium environment |
| `PACKAGE/network.py` | a network, and `Mine`, PPO with it |
| `tests/test_PACKAGE.py` | that the environment is sound, and is learned |

From this folder:

    weft train ppo PACKAGE.environment:Corridor --steps 20_000 --run first
    weft train PACKAGE.network:Mine PACKAGE.environment:Corridor --envs 8 --steps 20_000 --run mine
    weft train ppo PACKAGE.environment:Corridor --steps 20_000 --plan "env*2 | act | learn" --run workers
    weft eval first
    weft export first --to policy
    python -m pytest        # pip install pytest
"""

PYPROJECT = """[project]
name = "PACKAGE"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = []  # and Weft, from its checkout: on PyPI the name weft is another project's

[tool.setuptools]
packages = ["PACKAGE"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

FILES = {
    "README.md": README,
    "pyproject.toml": PYPROJECT,
    "{package}/__init__.py": '"""Weft in a project of your own."""\n',
    "{package}/environment.py": ENVIRONMENT,
    "{package}/network.py": NETWORK,
    "tests/test_{package}.py": TEST,
    ".gitignore": "runs/\n__pycache__/\n",
}
