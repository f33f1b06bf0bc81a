"""Environments with agents under plans: in lockstep, whatever the plan, one process's params.

A changing group of agents with PPO; teams of different kinds, with masks, each with a policy of its own; and two teams
in JAX, whose policies are two PPOs by pattern.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import zoo
from cells import ENVS, SEED, TOLERANCE, one_device
from teams import RedAndBlue
from toys import SMALL, farthest

import weft
from weft.core.specs import EnvSpec
from weft.runtimes.loop.engines import make_engine
from weft.runtimes.prepare.config import Prepared, RunConfig, Settings, prepare

LEARN_STEPS = 8
RUNS: dict[str, tuple[Any, Any]] = {
    "group": (weft.PPO(**SMALL), zoo.dying),
    "recurrent group": (weft.PPO(**SMALL, recurrent="gru"), zoo.dying),
    "teams": (zoo.EachTeam(), zoo.kinds),
    "two PPOs": (weft.Policies({"red*": weft.PPO(**SMALL), "blue*": weft.PPO(**SMALL)}), RedAndBlue()),
}
GROUP, TEAMS = (
    ("(env+act)*2 | learn", "env*2 | act | learn"),
    ("(env+act.*)*2 | learn.*", "env*2 | act.* | learn.*"),
)
CASES = [
    ("group", GROUP[0]),
    *(pytest.param("group", plan, marks=pytest.mark.slow) for plan in GROUP[1:]),
    ("teams", TEAMS[1]),
    pytest.param("teams", TEAMS[0], marks=pytest.mark.slow),
    pytest.param("two PPOs", "environments", marks=pytest.mark.slow),
    pytest.param("two PPOs", "srl", marks=pytest.mark.slow),
    pytest.param("two PPOs", "env*2 | act*2 | learn.red*2 | learn.blue*2", marks=pytest.mark.slow),
    pytest.param("teams", "env*2 | act.*+learn.*", marks=pytest.mark.slow),
    *(pytest.param("recurrent group", plan, marks=pytest.mark.slow) for plan in GROUP),
]


def prepared(run: str, plan: str) -> Prepared:
    algorithm, environment = RUNS[run]
    steps = ENVS * algorithm.unroll * LEARN_STEPS
    with one_device():
        return prepare(RunConfig(algorithm, environment, plan=plan, envs=ENVS, steps=steps, seed=SEED, lockstep=True))


def learned(run: Prepared) -> tuple[Any, Any, Any]:
    """Params by learner, the ledger, and of each policy its episodes: how many, returns and lengths in all."""
    with tempfile.TemporaryDirectory() as logs:
        engine = make_engine(run, Settings(), Path(logs))
        try:
            engine.start()
            report = engine.advance(LEARN_STEPS)()
            assert report.finite
            episodes = [tuple(map(sum, zip(*told, strict=True))) for told in report.episodes]
            states = {name: state.params for name, state in engine.train_states().items()}
            return jax.device_get(states), report.samples, episodes
        finally:
            engine.close()


@cache
def inline(run: str) -> tuple[Any, Any, Any]:
    return learned(prepared(run, "inline"))


@pytest.mark.parametrize(("run", "plan"), CASES)
def test_agents_learn_in_lockstep_what_one_process_learns(run: str, plan: str) -> None:
    ready = prepared(run, plan)
    assert ready.in_workers
    params, samples, episodes = learned(ready)
    assert farthest(params, inline(run)[0]) < TOLERANCE
    np.testing.assert_allclose(episodes, inline(run)[2], rtol=1e-6)
    assert samples.balanced
    assert samples.trained == ready.steps * len(ready.series)
    assert samples.dropped == {}


def test_another_meadow_teaches_something_else() -> None:
    """The comparison can fail."""
    algorithm, _ = RUNS["group"]
    steps = ENVS * algorithm.unroll * LEARN_STEPS
    other = prepare(RunConfig(algorithm, zoo.Meadow, env_options={"hens": 4}, envs=ENVS, steps=steps, seed=SEED))
    assert farthest(learned(other)[0], inline("group")[0]) > 100 * TOLERANCE


def test_masks_of_teams_are_those_of_any_team() -> None:
    hen = weft.EnvSpec("hen", weft.Box((1,)), weft.Discrete(2), action_mask=True)
    fox = weft.EnvSpec("fox", weft.Box((1,)), weft.Discrete(2))
    assert EnvSpec.of_teams("meadow", {"hen": hen, "fox": fox}).action_mask
    assert not EnvSpec.of_teams("meadow", {"fox": fox}).action_mask
