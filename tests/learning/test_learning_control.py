"""SAC and TD3 hit a mark in seconds and, at length, swing a pendulum up with their tuned settings."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import pytest

import weft
from weft.core.specs import Box, EnvSpec
from weft.envs.protocol import Transition

DDPG = {"critics": 1, "policy_delay": 1, "smoothing": 0.0}
SIMBA = {"blocks": 1, "hidden": (32,), "normalise_observations": True, "weight_decay": 1e-2, "learning_rate": 1e-3}
AT_LENGTH = pytest.mark.slow
THRESHOLDS = [  # algorithm, environment, fields, steps, the return to reach (random play -1,200, a good policy -150)
    pytest.param("sac", "Pendulum-v1", {}, 20_000, -300, id="sac-host", marks=AT_LENGTH),
    pytest.param("td3", "weft:Pendulum-v1", {}, 20_000, -300, id="td3-compiled", marks=AT_LENGTH),
    pytest.param("sac", "weft:Pendulum-v1", SIMBA, 20_000, -300, id="simba", marks=AT_LENGTH),
    pytest.param("td3", "weft:Pendulum-v1", DDPG, 20_000, -400, id="ddpg", marks=AT_LENGTH),
    pytest.param("sac", "weft:Pendulum-v1", {"prioritised": True, "n_step": 3}, 20_000, -300, marks=AT_LENGTH),
]


@pytest.mark.parametrize(("algorithm", "environment", "fields", "steps", "threshold"), THRESHOLDS)
def test_learns(algorithm, environment, fields, steps, threshold, tmp_path):
    run = weft.train(
        algorithm, environment, steps=steps, seed=1, root=tmp_path, quiet=True, tensorboard=False, **fields
    )
    assert run.summary["exit"] == "finished"
    assert weft.evaluate(run, episodes=20).return_mean >= threshold


@dataclass(frozen=True)
class Mark:
    """One step an episode: minus the squared distance of the action, within [-2, 2], from 1."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("toys:Mark", Box((1,)), Box((1,), "float32", -2.0, 2.0), pure=True)

    def reset(self, key):
        return jnp.int32(0), jnp.ones(1)

    def step(self, state, action, key):
        return state, Transition(jnp.ones(1), -jnp.square(action[0] - 1.0), True, False)


@pytest.mark.parametrize("algorithm", [weft.TD3, weft.SAC])
def test_a_mark_is_hit_at_once(algorithm, tmp_path):
    fields = {"unroll": 8, "hidden": (16,), "batch": 32, "samples_per_insert": 16.0, "capacity": 4096}
    made = algorithm(**fields, learning_begins=256, learning_rate=5e-3, target_rate=0.05)
    run = weft.train(made, Mark(), envs=8, steps=6_000, root=tmp_path, quiet=True, tensorboard=False, run="mark")
    assert abs(float(run.policy([1.0])[0]) - 1.0) < 0.15
