"""A run in lockstep that is brought back goes on as one: act and learn agree on the params and noise of each unroll."""

from __future__ import annotations

import jax
import mapped
import pytest
from toys import SMALL, prepared, same, train_state

import weft
from weft.runtimes.loop.engines import make_engine
from weft.services import checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["env*2 | act | learn", "(env+act)*2 | learn"])
def test_after_a_resume_extras_are_those_of_the_actions_taken(plan, tmp_path):
    """PPO with one epoch of one minibatch: the params that acted are those that learn, so that nothing has moved.

    Learn finds act's log-probabilities again, from the number of the unroll: were that another one than act's, the
    policy would seem to have changed.
    """
    run = prepared(weft.PPO(**SMALL), "CartPole-v1", envs=8, plan=plan, vector="each", lockstep=True)
    first = make_engine(run, logs=tmp_path / "logs")
    try:
        first.start()
        assert first.advance(5)().finite
        tree, document = first.saved()
    finally:
        first.close()
    engine = make_engine(run, logs=tmp_path / "logs")
    try:
        engine.resume(tree, document)
        report = engine.advance(5)()
        assert int(train_state(engine).step) == 10
    finally:
        engine.close()
    assert abs(report.metrics["approx_kl"]).max() < 1e-7
    assert report.samples is not None
    assert report.samples.balanced
    assert report.samples.trained == 10 * 8 * SMALL["unroll"]
    assert sum(report.samples.dropped.values()) <= 8 * SMALL["unroll"], "what was on its way, at most"


INLINE = "inline"
MAPS = [
    ("Centred", "(env+act)*2 | relabel | learn"),
    ("CentredOnHost", "env*2 | act | relabel+learn"),
    ("Filtered", "(env+act)*2 | relabel | learn"),
    ("Doubled", "env*2 | act | relabel | learn"),
    ("Chained", "(env+act)*2 | relabel | count | learn"),
    ("ClippedOnHost", "(env+act)*2 | grad*2 | clip | apply"),
    ("RoundedOnHost", "(env+act)*2 | round | learn"),
]
QUICK = [("Filtered", "(env+act)*2 | relabel | learn")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        *((name, INLINE) for name, _ in MAPS),
        *(pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in MAPS),
    ],
)
def test_a_run_with_maps_interrupted_at_half_learns_what_one_never_interrupted_does(name, plan, tmp_path):
    """With the states of maps: those of host code may have 64 bits."""
    algorithm = getattr(mapped, name)(unroll=4, hidden=(8,))
    run = prepared(algorithm, "CartPole-v1", envs=8, plan=plan, vector="each", lockstep=True)

    (never, before), (resumed, after) = whole_and_in_halves(run, tmp_path, 4)
    assert same(never, resumed)
    assert jax.tree.map(lambda x: x.dtype, never) == jax.tree.map(lambda x: x.dtype, resumed)
    if plan != INLINE:
        assert before.samples == after.samples
        assert before.samples.balanced
        assert before.samples.trained == 8 * 8 * 4
        assert before.samples.in_flight == 0
        assert before.env_steps == after.env_steps


def whole_and_in_halves(run, tmp_path, steps):
    """The states and the last report of a run of twice so many learn steps; and of one that was resumed after half."""

    def engine_does(doing):
        engine = make_engine(run, logs=tmp_path / "logs")
        try:
            return doing(engine)
        finally:
            engine.close()

    def whole(engine):
        engine.start()
        report = engine.advance(2 * steps)()
        return engine.saved()[0].fragments, report

    def half(engine):
        engine.start()
        engine.advance(steps)()
        checkpoints.save(tmp_path, steps, *engine.saved())

    def rest(engine):
        restored = checkpoints.load_latest(tmp_path, engine.template(), pytest.fail)
        assert restored is not None
        assert engine.resume(restored[0], restored[1]) == []
        report = engine.advance(steps)()
        return engine.saved()[0].fragments, report

    never = engine_does(whole)
    engine_does(half)
    return never, engine_does(rest)


@pytest.mark.slow
@pytest.mark.parametrize("prioritised", [False, True])
def test_a_replay_of_its_own_is_saved_and_brought_back_whole(prioritised, tmp_path):
    """Kept, drawn and told of as if nothing had been; three learn calls follow each unroll."""
    fields = {"unroll": 4, "hidden": (8,), "capacity": 192, "batch": 32, "samples_per_insert": 3.0}
    algorithm = weft.DQN(**fields, learning_begins=60, n_step=3, prioritised=prioritised)
    plan = "(env+act)*2 | replay | learn"
    run = prepared(algorithm, "CartPole-v1", envs=8, plan=plan, vector="each", lockstep=True, steps=640)
    (never, before), (resumed, after) = whole_and_in_halves(run, tmp_path, 12)
    assert set(never) == {"replay", "learn"}
    assert same(never, resumed)
    assert before.samples == after.samples
    assert before.samples.balanced
    assert before.samples.trained == (1 + 8) * 8 * 4, "one unroll fills it"
    assert before.samples.in_flight == 0
