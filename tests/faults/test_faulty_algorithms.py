"""Algorithms of the user's that raise in workers: the error says which worker, which fragment, when, and their line."""

from __future__ import annotations

import json

import pytest

PLAN = ["--plan", "env*2 | act+learn", "--envs", "8", "--seed", "1", "--algo.hidden", "16", "--steps", "100000000"]


@pytest.mark.parametrize(
    ("name", "where", "line", "error"),
    [
        ("RaisesInLearn", "in fragment learn, at learn step 1: AttributeError:", "in learn", "no_such_thing"),
        pytest.param(
            *("RaisesLater", "in fragment learn, at learn step 4: ", "in _fourth", "the loss fell off"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("RaisesInAct", "in fragment act, at learn step 1: ", "in _any", "cannot see a thing"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_algorithm_that_raises_in_a_worker_is_named_with_fragment_and_step(training, name, where, line, error):
    run = training(f"faulty_algorithms:{name}", "CartPole-v1", *PLAN)
    assert run.end(seconds=90) == 1
    assert run.left() == []
    err = run.err
    assert f"weft: error: worker act+learn-0 failed: {where}" in err
    files = [shown for shown in err.splitlines() if shown.startswith("  File ")]
    assert files[-1].startswith(f'  File "{run.folder.parent / "faulty_algorithms.py"}"')
    assert files[-1].endswith(line)
    assert error in err
    if name == "RaisesInLearn":  # from within a callback of JAX's, it comes as a text with all of the frames
        assert len(files) == 1, "their frames alone"
    assert "this should not have happened" not in err
    assert "it is replaced" not in err
    assert "goes on from the last checkpoint" not in err
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["exit"] == "failed"
    assert f"worker act+learn-0 failed: {where}" in summary["error"]
