"""A run in lockstep that is brought back goes on as one: act and learn agree on the params and noise of each unroll."""

from __future__ import annotations

import pytest
from toys import SMALL, prepared, train_state

import weft
from weft.runtimes.loop.train import make_engine


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
