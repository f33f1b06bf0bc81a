"""What the tests of the maths share: random unrolls, and the libraries that serve as oracles."""

import importlib
import warnings
from types import ModuleType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest


class Case(NamedTuple):
    """A random unroll, ``[T, B]`` NumPy arrays. Where an array must not be read it holds NaN."""

    reward: np.ndarray
    value: np.ndarray
    bootstrap: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    log_ratio: np.ndarray
    valid: np.ndarray

    def arrays(self, *names: str) -> list[jnp.ndarray]:
        return [jnp.asarray(getattr(self, name)) for name in names]


def make_case(seed: int, steps: int = 23, envs: int = 17, truncate: bool = True, invalid: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    reward, value, bootstrap, log_ratio = (rng.normal(size=shape).astype(np.float32) for _ in range(4))
    terminated = rng.random(shape) < 0.15
    truncated = (rng.random(shape) < 0.15) & truncate  # some records are both: those count as terminated
    valid = np.ones(shape, bool)
    if invalid:  # half of the environments spend the record after an episode's end on a reset
        for b in range(0, envs, 2):
            for t in range(1, steps):
                if valid[t - 1, b] and (terminated | truncated)[t - 1, b]:
                    valid[t, b] = False
        terminated &= valid
        truncated &= valid
        reward[~valid], log_ratio[~valid] = np.nan, np.nan
    last = np.zeros(shape, bool)
    last[-1] = True
    bootstrap[~(truncated | last) | terminated] = np.nan
    return Case(reward, value, bootstrap, terminated, truncated, log_ratio, valid)


@pytest.fixture(params=[0, 1, 2])
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


@pytest.fixture
def only_terminations() -> Case:
    """Every record valid and none truncated: where other libraries mean the same as we do."""
    return make_case(3, truncate=False, invalid=False)


def _oracle(name: str) -> ModuleType:
    with warnings.catch_warnings():  # they import what newer versions of JAX deprecate
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.fixture(scope="session")
def rlax() -> ModuleType:
    return _oracle("rlax")


@pytest.fixture(scope="session")
def distrax() -> ModuleType:
    return _oracle("distrax")
