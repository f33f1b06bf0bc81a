"""Algorithms of the user's that raise in workers: the error says which worker, which fragment, when, and their line."""

from __future__ import annotations

import json
import re
import signal

import pytest
from running import missing

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
    assert "goes on from what was saved" not in err
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["exit"] == "failed"
    assert f"worker act+learn-0 failed: {where}" in summary["error"]


MAP = ["--envs", "8", "--seed", "1", "--algo.hidden", "16", "--steps", "100000000"]
APART, BESIDE = "(env+act)*2 | relabel | learn", "(env+act)*2 | relabel+learn"


def failed(training, name, plan):
    """A run that must fail; what it said."""
    run = training(f"faulty_algorithms:{name}", "CartPole-v1", "--plan", plan, *MAP)
    assert run.end(seconds=90) == 1
    assert run.left() == []
    assert "this should not have happened" not in run.err
    assert "it is replaced" not in run.err
    assert json.loads((run.folder / "summary.json").read_text())["exit"] == "failed"
    return run.err


@pytest.mark.parametrize(
    ("name", "plan", "where"),
    [
        ("RaisesInMap", APART, "worker relabel-0 failed: in fragment relabel, at learn step "),
        pytest.param(
            *("RaisesInMap", BESIDE, "worker relabel+learn-0 failed: in fragment relabel, at learn step "),
            marks=pytest.mark.slow,
        ),
        ("RaisesInMap", "inline", "your code raised ValueError, as shown above"),
    ],
)
def test_host_code_of_a_fragment_that_raises_is_named_with_the_users_line(training, name, plan, where):
    err = failed(training, name, plan)
    assert f"weft: error: {where}" in err
    files = [shown for shown in err.splitlines() if shown.startswith("  File ")]
    assert len(files) == 1, "their frames alone"
    assert files[0].endswith("in relabel")
    assert "ValueError: no such label\nraised in fragment 'relabel'" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "where"),
    [
        (APART, "worker relabel-0 failed: in fragment relabel, at learn step "),
        (BESIDE, "worker relabel+learn-0 failed: in fragment relabel+learn, at learn step 4: "),
    ],
)
@pytest.mark.slow
def test_a_pure_fragment_that_raises_is_named(training, plan, where):
    err = failed(training, "RaisesInPureMap", plan)
    assert f"weft: error: {where}" in err
    assert "ValueError: the loss fell off" in err


def test_a_fragment_that_cannot_be_traced_is_named_before_anything_starts(training):
    run = training("faulty_algorithms:CannotBeTraced", "CartPole-v1", "--plan", APART, *MAP)
    assert run.end(seconds=90) == 1
    assert "incompatible shapes" in run.err
    assert "raised in fragment 'relabel'" in run.err
    assert run.seen == {}, "no worker was started"


@pytest.mark.parametrize(
    ("name", "plan", "what"),
    [
        pytest.param(
            "OtherShape",
            APART,
            r"at \.reward expected float32\[5, \d\], got float32\[4, \d\]",
            marks=pytest.mark.slow,
        ),
        ("OtherShape", "inline", r"at \.reward expected float32\[5, 8\]"),
        pytest.param("OtherDtype", BESIDE, r"at \.reward expected float32.*, got float64", marks=pytest.mark.slow),
    ],
)
def test_a_fragment_that_gives_something_else_than_it_declared_is_one_clear_error(training, name, plan, what):
    err = failed(training, name, plan)
    (error,) = [line for line in err.splitlines() if line.startswith("weft: error:")]
    assert re.search(rf"fragment 'relabel' gave a message that is not what it declares \(gives=...\): {what}", error)
    assert "Return the declared shapes and dtypes, or declare what you return." in error
    assert "Traceback" not in err, "nobody raised: the message says it all"


@pytest.mark.slow
def test_a_worker_whose_fragment_hangs_is_replaced(training):
    run = training("faulty_algorithms:HangsInMap", "CartPole-v1", "--plan", APART, *MAP, "--hang-seconds", "1")
    run.wait(lambda: "worker relabel-0 has made no progress for" in run.err, 60, "the one that hangs being found")
    run.wait(lambda: "it is replaced" in run.err, 20, "its being replaced")
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == 1
    assert missing(run.summary["samples"]) == 0
