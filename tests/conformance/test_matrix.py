"""The matrix: every algorithm by every named plan by every kind of environment runs, or is refused with a reason.

A plan that runs must learn what ``inline`` learns from the same seed. To add a row, add to ALGORITHMS or ENVIRONMENTS;
a plan is added by naming it in ``weft.plans``, and its cells are checked from then on.
"""

from __future__ import annotations

from functools import cache

import jax
import pytest
from toys import SMALL, farthest

import weft
from weft.core.errors import PlanError
from weft.plans import catalogue
from weft.runtimes.config import RunConfig, prepare
from weft.runtimes.local import make_engine

# One minibatch of everything and no normalisation across it: then replicas change nothing but the order of sums.
ALGORITHMS = {
    "ppo": weft.PPO(**SMALL),
    "ppo recurrent": weft.PPO(**SMALL, recurrent="gru"),
}
ENVIRONMENTS = {
    "jax": {"environment": "weft:CartPole-v1"},
    "gymnasium": {"environment": "CartPole-v1", "vector": "each"},
}
PLANS = {name: runs_now for name, _, _, runs_now in catalogue()}
RUNS = sorted(name for name, runs_now in PLANS.items() if runs_now)
LEARN_STEPS = 3
# Each Adam step moves a weight by up to 0.01; sums in another order may move it by a thousandth of that.
TOLERANCE = 1e-5


def prepare_cell(algorithm: str, plan: str, environment: str):
    config = RunConfig(ALGORITHMS[algorithm], plan=plan, envs=8, steps=32 * LEARN_STEPS, **ENVIRONMENTS[environment])
    return prepare(config)


@cache
def learned(algorithm: str, plan: str, environment: str):
    """The params after a few learn calls, and how many replicas there were."""
    prepared = prepare_cell(algorithm, plan, environment)
    engine = make_engine(prepared)
    try:
        engine.start()
        report = engine.advance(LEARN_STEPS)()
        assert report.finite
        assert report.learn_steps == LEARN_STEPS
        return jax.device_get(engine.train_state().params), prepared.plan.groups[0].replicas
    finally:
        engine.close()


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("plan", RUNS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_that_runs_learns_what_inline_learns(algorithm, plan, environment):
    params, replicas = learned(algorithm, plan, environment)
    inline, _ = learned(algorithm, "inline", environment)
    assert farthest(params, inline) < TOLERANCE
    assert replicas == (4 if plan == "replicated" else 1)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("plan", sorted(set(PLANS) - set(RUNS)))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_that_does_not_run_is_refused_with_a_reason(algorithm, plan, environment):
    with pytest.raises(PlanError) as caught:
        prepare_cell(algorithm, plan, environment)
    message = str(caught.value)
    assert plan in message or " | " in message, "it does not say which plan"
    assert "Nearest plan" in message, "it does not say what to do instead"


def test_the_cells_are_not_all_alike():
    """The comparison above can fail: another seed learns something else."""
    here, _ = learned("ppo", "inline", "jax")
    config = RunConfig(ALGORITHMS["ppo"], plan="inline", envs=8, steps=32 * LEARN_STEPS, seed=1, **ENVIRONMENTS["jax"])
    engine = make_engine(prepare(config))
    engine.start()
    engine.advance(LEARN_STEPS)()
    assert farthest(here, engine.train_state().params) > 100 * TOLERANCE
    assert set(RUNS) >= {"inline", "replicated"}
