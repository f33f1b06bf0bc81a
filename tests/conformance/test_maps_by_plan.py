"""Fragments of one's own under several plans: in lockstep a plan learns what one process learns, whatever the map does.

On unrolls, params and gradients; pure or host code; in a group of its own, beside others, replicated with grad.
"""

from __future__ import annotations

from functools import cache

import jax
import mapped
import pytest
from cells import TOLERANCE
from toys import farthest, prepared, same, train_state

import weft
from weft.core.errors import PlanError
from weft.runtimes.loop.engines import make_engine

LEARN_STEPS = 12
INLINE = "inline"

# The first of each algorithm is tried by every run of the tests.
TRIED = {
    "Rounded": ["(env+act)*2 | round | learn", "env*2 | act | round+learn"],
    "RoundedOnHost": ["env*2 | act | round | learn", "(env+act)*2 | round+learn"],
    "Clipped": ["(env+act)*2 | grad | clip | apply", "env*2 | act | grad | clip+apply"],
    "ClippedOnHost": ["(env+act)*2 | grad+clip | apply", "(env+act)*2 | grad | clip | apply"],
    "Scaled": [
        "(env+act)*2 | (grad+scale)*2 | apply",
        "(env+act+grad+scale)*2 | apply",
        "(env+act+grad)*2 | scale | apply",
    ],
    "ScaledOnHost": ["(env+act+grad)*2 | scale | apply", "(env+act)*2 | (grad+scale)*2 | apply"],
    "Centred": ["(env+act)*2 | relabel | learn", "env*2 | act | relabel+learn"],
    "Doubled": ["env*2 | act | relabel | learn", "(env+act)*2 | relabel+learn"],
    "DoubledPurely": ["env*2 | act | relabel+learn", "(env+act)*2 | relabel | learn"],
    "Filtered": ["(env+act)*2 | relabel+learn"],
    "Reading": ["(env+act)*2 | relabel*2 | learn", "env*2 | act+relabel | learn"],
}
QUICK = {("Rounded", 0)}


@cache
def learned(name: str, plan: str):
    """The params after LEARN_STEPS, and the ledger."""
    algorithm = getattr(mapped, name)(unroll=4, hidden=(8,))
    run = prepared(algorithm, "CartPole-v1", envs=8, plan=plan, vector="each", lockstep=True, seed=3)
    engine = make_engine(run)
    try:
        engine.start()
        report = engine.advance(LEARN_STEPS)()
        assert report.learn_steps == LEARN_STEPS
        return jax.device_get(train_state(engine).params), report.samples
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(name, plan, marks=[] if (name, k) in QUICK else [pytest.mark.slow])
        for name, plans in TRIED.items()
        for k, plan in enumerate(plans)
    ],
)
def test_a_plan_with_a_map_learns_in_lockstep_what_one_process_learns(name, plan):
    params, samples = learned(name, plan)
    assert farthest(params, learned(name, INLINE)[0]) < TOLERANCE
    assert samples.balanced
    assert samples.trained == LEARN_STEPS * 8 * 4
    assert set(samples.dropped) == ({"filtered"} if name == "Filtered" else set())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if k % 3 else []) for k, n in enumerate(TRIED)]
)
def test_the_map_makes_a_difference(name):
    """The comparison above can fail: without the map something else is learned."""
    assert farthest(learned(name, INLINE)[0], learned("Mapped", INLINE)[0]) > 10 * TOLERANCE


def test_a_map_with_a_state_is_not_replicated_by_itself_in_lockstep():
    with pytest.raises(PlanError, match="replicates 'relabel', which has a state"):
        prepared(mapped.Centred(), "CartPole-v1", envs=8, plan="(env+act)*2 | relabel*2 | learn", lockstep=True)


def test_every_algorithm_of_the_module_is_tried_somewhere():
    known = {n for n, cls in vars(mapped).items() if isinstance(cls, type) and issubclass(cls, weft.Algorithm)}
    assert known - set(TRIED) == {"Mapped", "CentredOnHost", "Chained"}, "those are killed and resumed"


@pytest.mark.slow
def test_a_run_in_workers_whose_learn_is_parted_by_a_map_is_loaded_as_one_process(tmp_path):
    run = weft.train(
        mapped.ClippedOnHost(unroll=4, hidden=(8,)),
        "CartPole-v1",
        envs=8,
        plan="(env+act+grad)*2 | clip | apply",
        steps=640,
        run="parted",
        root=tmp_path,
        quiet=True,
        tensorboard=False,
    )
    assert run.summary["samples"]["trained"] >= 640
    assert same(weft.load(run.folder).params, run.params)
