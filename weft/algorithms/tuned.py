"""Tuned settings by environment family, so that ``weft train ALGO ENV`` learns without a flag.

Each row changes a few defaults of its algorithm, for environments whose name matches. A flag or an explicit algorithm
object always wins over these. docs/algorithms has the returns that they reach.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft.core.specs import Box, EnvSpec
from weft.nets.encoders import has_image


class Tuned(NamedTuple):
    """Settings of a run: environments, steps, and the algorithm's fields that differ from its defaults."""

    envs: int
    steps: int
    fields: dict[str, Any]
    source: str = "defaults"  # the row that it came from, for the config

    def fitted(self, asked: Mapping[str, Any], envs: int | None) -> Tuned:
        """With as many minibatches as divide the batch, where its size was asked for and their number was not."""
        unroll, parts = asked.get("unroll", self.fields.get("unroll")), self.fields.get("minibatches")
        if parts is None or "minibatches" in asked or not isinstance(unroll, int):
            return self
        return self._replace(fields={**self.fields, "minibatches": math.gcd(parts, (envs or self.envs) * unroll)})


_CLASSIC = {"entropy_cost": 0.0, "learning_rate_end": 0.0}

# What serves vectors of any scale: both sides normalised, many small updates of a batch, the rate falling to 0.
_VECTORS = {
    "unroll": 256,
    "epochs": 10,
    "minibatches": 32,
    "learning_rate_end": 0.0,
    "normalise_observations": True,
    "normalise_rewards": True,
}
_DISCRETE = {**_VECTORS, "learning_rate": 5e-4, "entropy_cost": 0.005, "discount": 0.995, "trace_decay": 0.97}
_CONTINUOUS = {**_VECTORS, "learning_rate": 3e-4, "entropy_cost": 0.0}

# Scores differ by orders of magnitude from game to game: what is learned from is clipped, what is told is not.
# The values are those of the literature.
_ATARI = {"reward_clip": 1.0, "learning_rate_end": 0.0}

# Whole episodes, of which there are many: what one agent does is a small part of what all of them get.
_PARTICLES = {
    "unroll": 25,
    "epochs": 8,
    "minibatches": 8,
    "learning_rate": 1e-3,
    "learning_rate_end": 0.0,
    "discount": 0.95,
    "entropy_cost": 0.005,
    "normalise_observations": True,
    "normalise_rewards": True,
}

_PPO: list[tuple[str, Tuned]] = [
    ("ALE/*", Tuned(8, 10_000_000, {**_ATARI, "learning_rate": 2.5e-4, "clip": 0.1})),
    (
        "*CartPole*",
        Tuned(32, 300_000, {**_CLASSIC, "unroll": 32, "learning_rate": 2e-3, "epochs": 8, "discount": 0.98}),
    ),
    (
        "*Acrobot*",
        Tuned(
            32,
            400_000,
            {**_CLASSIC, "unroll": 64, "learning_rate": 1e-3, "epochs": 10, "normalise_observations": True},
        ),
    ),
    (
        "*MountainCar-v*",  # the goal is rarely reached: normalised rewards make the first successes count
        Tuned(
            64,
            1_000_000,
            {
                **_CLASSIC,
                "unroll": 16,
                "learning_rate": 4e-3,
                "trace_decay": 0.98,
                "normalise_observations": True,
                "normalise_rewards": True,
            },
        ),
    ),
    (
        "*Pendulum*",
        Tuned(
            32,
            500_000,
            {
                **_CLASSIC,
                "unroll": 128,
                "learning_rate": 1e-3,
                "epochs": 10,
                "minibatches": 8,
                "discount": 0.9,
                "normalise_rewards": True,
            },
        ),
    ),
    # Weak actions cost little and lead nowhere: only a wide policy comes to the flag by chance, and often enough.
    ("*MountainCarContinuous*", Tuned(16, 1_000_000, {**_CONTINUOUS, "deviation": 2.0})),
    ("*HalfCheetah*", Tuned(8, 1_000_000, {**_CONTINUOUS, "deviation": 0.5, "discount": 0.98})),
    ("*MiniGrid*", Tuned(16, 1_000_000, {"learning_rate": 1e-3, "learning_rate_end": 0.0, "minibatches": 8})),
    ("*Catch*", Tuned(32, 150_000, {"unroll": 32, "learning_rate": 1e-3})),
    (
        "*Memory*",
        Tuned(64, 300_000, {**_CLASSIC, "unroll": 32, "learning_rate": 2e-3, "recurrent": "gru", "recurrent_size": 32}),
    ),
    ("*Orchard*", Tuned(64, 300_000, {**_CLASSIC, "unroll": 32, "learning_rate": 2e-3})),
    ("*Spread*", Tuned(64, 2_000_000, _PARTICLES)),
    ("*Tag*", Tuned(64, 1_000_000, _PARTICLES)),
]

# One update for each batch needs larger steps than PPO's. RMSProp copes with them better than Adam, but does not learn
# Memory.
_ONE_UPDATE = {**_CLASSIC, "unroll": 16, "learning_rate": 5e-3}
_MEMORY = {**_CLASSIC, "unroll": 16, "learning_rate": 3e-3, "optimizer": "adam"}

_ACTOR_CRITIC: list[tuple[str, Tuned]] = [
    ("ALE/*", Tuned(16, 10_000_000, {**_ATARI, "learning_rate": 6e-4, "unroll": 20})),
    ("*CartPole*", Tuned(32, 400_000, {**_ONE_UPDATE, "reward_scale": 0.1})),
    ("*Acrobot*", Tuned(32, 500_000, {**_ONE_UPDATE, "reward_scale": 0.1})),
    ("*Catch*", Tuned(32, 150_000, _ONE_UPDATE)),
    ("*Memory*", Tuned(32, 300_000, {**_MEMORY, "recurrent": "gru", "recurrent_size": 32})),
]

# A quarter of the run is kept: with more, old mistakes are drawn for long; with 10,000 steps, all that is left of a
# good policy is its successes, and it forgets what leads to a fall.
_DQN: list[tuple[str, Tuned]] = [
    (
        "*CartPole*",
        Tuned(
            8,
            200_000,
            {
                "unroll": 32,
                "n_step": 3,
                "capacity": 50_000,
                "batch": 128,
                "samples_per_insert": 16.0,
                "learning_rate": 5e-4,
                "learning_rate_end": 0.0,
                "target_period": 50,
                "epsilon_end": 0.01,
                "value_min": 0.0,
                "value_max": 100.0,
            },
        ),
    ),
]

# A small network with large steps; half a learn call for each step.
_SWING = {
    "hidden": (64, 64),
    "batch": 64,
    "samples_per_insert": 32.0,
    "learning_rate": 3e-3,
    "target_rate": 0.01,
    "capacity": 50_000,
    "learning_begins": 500,
}
_SAC: list[tuple[str, Tuned]] = [("*Pendulum*", Tuned(8, 40_000, {**_SWING, "temperature": 0.2}))]
_TD3: list[tuple[str, Tuned]] = [
    (
        "*Pendulum*",
        Tuned(
            8,
            40_000,
            {**_SWING, "samples_per_insert": 64.0, "learning_rate": 2e-3, "noise": 0.2, "discount": 0.98},
        ),
    ),
]

# Small values, a wide network and long unrolls: with other settings one run in twenty forgets what it knew.
_PQN: list[tuple[str, Tuned]] = [
    (
        "*CartPole*",
        Tuned(
            16,
            300_000,
            {
                "unroll": 64,
                "minibatches": 8,
                "learning_rate": 5e-4,
                "learning_rate_end": 0.0,
                "trace_decay": 0.9,
                "discount": 0.98,
                "epsilon_end": 0.01,
                "exploration": 0.5,
                "reward_scale": 0.1,
            },
        ),
    ),
]

_R2D2: list[tuple[str, Tuned]] = [
    (
        "*Memory*",
        Tuned(
            16,
            100_000,
            {
                "unroll": 10,
                "hidden": (32,),
                "recurrent_size": 32,
                "learning_rate": 2e-3,
                "samples_per_insert": 4.0,
                "epsilon_end": 0.02,
                "exploration": 0.5,
            },
        ),
    ),
]

# Nearly all of the run explores: what is seldom tried must be in the replay often enough to count.
_TEAM: list[tuple[str, Tuned]] = [("*TwoStep*", Tuned(16, 40_000, {"exploration": 0.8}))]

# Steps only show how good the policy is: there is a learn call for every 8 of them.
_OFFLINE = Tuned(8, 200_000, {"normalise_observations": True})
_SMALL = {"hidden": (64, 64), "batch": 128, "learning_rate": 1e-3, "normalise_observations": True}
_CLONED: list[tuple[str, Tuned]] = [(f"*{name}*", Tuned(8, 50_000, _SMALL)) for name in ("CartPole", "Pendulum")]

# One learn call for each step; the values are those of the literature.
_SOFT = Tuned(4, 1_000_000, {"critic_learning_rate": 1e-3, "learning_begins": 5_000})
_TWIN = Tuned(4, 1_000_000, {"learning_begins": 25_000})

# Its values are normalised already.
_CENTRAL = {name: value for name, value in _PARTICLES.items() if name != "normalise_rewards"}
_MAPPO: list[tuple[str, Tuned]] = [
    ("*Spread*", Tuned(64, 2_000_000, _CENTRAL)),
    ("*Tag*", Tuned(64, 1_000_000, _CENTRAL)),
]

ROWS = {
    "ppo": _PPO,
    "mappo": _MAPPO,
    "impala": _ACTOR_CRITIC,
    "a2c": _ACTOR_CRITIC,
    "dqn": _DQN,
    "sac": _SAC,
    "td3": _TD3,
    "pqn": _PQN,
    "r2d2": _R2D2,
    "vdn": _TEAM,
    "qmix": _TEAM,
    "bc": _CLONED,
    "iql": _CLONED,
}
"""The rows of each algorithm; the first that matches is used."""

OTHERS = {
    "ppo": {
        "discrete": Tuned(16, 1_000_000, _DISCRETE),
        "continuous": Tuned(8, 1_000_000, _CONTINUOUS),
        # Slices of environments, of which there are too few for small ones.
        "recurrent": Tuned(16, 1_000_000, {"normalise_observations": True, "normalise_rewards": True}),
    },
    "sac": {"continuous": _SOFT},
    "td3": {"continuous": _TWIN},
    "bc": {"discrete": _OFFLINE, "continuous": _OFFLINE},
    "iql": {"discrete": _OFFLINE, "continuous": _OFFLINE},
}
"""What an algorithm takes where no row matches; where nothing is said, its defaults."""

_IMAGES, _REST = Tuned(16, 5_000_000, {}), Tuned(16, 1_000_000, {})


def tuned(algorithm: str, environment: str, spec: EnvSpec, *, recurrent: bool = False) -> Tuned:
    """The settings for an algorithm's registry name in an environment; ``recurrent`` where a flag asks for that."""
    for name in (environment.rpartition(":")[2], spec.gymnasium_id):  # its own, and what a factory wraps
        for pattern, row in ROWS.get(algorithm, []):
            if fnmatch.fnmatchcase(name, pattern):
                return row._replace(source=pattern.strip("*"))
    if has_image(spec.observation):
        return _IMAGES
    kind = "recurrent" if recurrent else "continuous" if isinstance(spec.action, Box) else "discrete"
    return OTHERS.get(algorithm, {}).get(kind, _REST)
