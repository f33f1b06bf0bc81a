"""Environments that hang, raise, lie, or cannot be made, in workers."""

from __future__ import annotations

import json
import signal
import time

import pytest
from running import missing

PLAN = ["--plan", "env*2 | act | learn", "--envs", "8", "--seed", "1", "--algo.hidden", "16", "--vector", "each"]


def test_a_worker_whose_environment_hangs_is_replaced(training):
    run = training("ppo", "faulty_envs:hangs_once", *PLAN, "--steps", "100000000", "--hang-seconds", "2")
    run.wait(lambda: "has made no progress for" in run.err, 60, "the one that hangs being found")
    run.wait(lambda: "it is replaced" in run.err, 20, "its being replaced")
    run.wait_for_learning(3)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == 1
    assert missing(run.summary["samples"]) == 0


@pytest.mark.slow
def test_a_worker_whose_environment_has_children_is_replaced_although_they_live(training):
    run = training("ppo", "faulty_envs:forks", *PLAN, "--steps", "100000000")
    run.wait_for_learning(2)
    pid = run.kill("env-0")
    run.wait_for_another("env-0", pid, 10.0)
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert missing(run.summary["samples"]) == 0


def test_an_environment_that_raises_in_a_worker_is_named_with_the_users_traceback(training):
    run = training("ppo", "faulty_envs:raises", *PLAN, "--steps", "100000000", "--env-errors", "fail")
    assert run.end(seconds=90) == 1
    assert run.left() == []
    err = run.err
    assert "worker env-" in err
    assert "environment " in err
    assert "step 150" in err
    assert "self.total // 0" in err
    assert "ZeroDivisionError" in err
    assert "this should not have happened" not in err
    assert "it is replaced" not in err, "it failed, and said why"
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["exit"] == "failed"
    assert "self.total // 0" in summary["error"]


@pytest.mark.slow
def test_a_worker_whose_environment_crashes_again_and_again_is_given_up_and_the_rest_learn(training):
    run = training("ppo", "faulty_envs:crashes", *PLAN, "--steps", "100000000")
    run.wait(lambda: "given up" in run.err, 60, "its being given up")
    assert "worker env-1 was killed by SIGSEGV, 3 times in a row" in run.err
    assert "in step" in run.err, "the stack, with the line of the user's"
    run.wait_for_learning(3)
    assert sorted(run.workers()) == ["act-0", "env-0", "learn-0"]
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert run.summary["restarts"] == 2
    assert missing(run.summary["samples"]) == 0


def test_a_crash_in_one_process_leaves_the_stack(training):
    run = training("ppo", "faulty_envs:crashes", "--plan", "inline", *PLAN[2:], "--steps", "100000000")
    assert run.end(seconds=60) == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in run.err
    assert "faulty_envs.py" in run.err


@pytest.mark.slow
def test_an_environment_that_leaves_the_process_in_a_worker_has_failed(training):
    run = training("ppo", "faulty_envs:leaves", *PLAN, "--steps", "100000000", "--env-errors", "fail")
    assert run.end(seconds=90) == 1
    assert run.left() == []
    (error,) = [line for line in run.err.splitlines() if line.startswith("weft: error:")]
    assert error.startswith("weft: error: worker env-")
    assert "raised SystemExit in step at its step 150" in error
    assert "sys.exit()" in run.err, "the line that did it"
    assert "it is replaced" not in run.err
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["exit"] == "failed"
    assert "raised SystemExit in step at its step 150" in summary["error"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("lies", "observation came as shape [1] float32, but the space says Box[2] float32"),
        pytest.param("not_a_number", "the reward is nan", marks=pytest.mark.slow),
    ],
)
def test_an_environment_that_breaks_its_contract_in_a_worker_is_one_clear_error(training, name, what):
    run = training("ppo", f"faulty_envs:{name}", *PLAN, "--steps", "100000000")
    assert run.end(seconds=90) == 1
    assert run.left() == []
    (error,) = [line for line in run.err.splitlines() if line.startswith("weft: error:")]
    assert error.startswith("weft: error: worker env-")
    assert f"failed: environment 'faulty_envs:{name}': number " in error
    assert f"step 29: {what}. Correct the environment" in error
    assert "Traceback" not in run.err, "nobody raised: the message says it all"
    assert "this should not have happened" not in run.err
    assert "it is replaced" not in run.err
    assert error.removeprefix("weft: error: ") in json.loads((run.folder / "summary.json").read_text())["error"]


def test_an_environment_that_cannot_be_made_in_a_worker_stops_everything_with_the_reason(training):
    began = time.monotonic()
    run = training("ppo", "faulty_envs:cannot_be_made", *PLAN, "--steps", "100000")
    assert run.end(seconds=60) == 1
    assert time.monotonic() - began < 45
    assert run.left() == []
    assert "worker env-" in run.err
    assert "no licence for this simulator" in run.err
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (summary["exit"], summary["env_steps"]) == ("failed", 0)
    assert "no licence for this simulator" in summary["error"]


@pytest.mark.slow
def test_a_worker_that_dies_as_it_starts_stops_everything_with_how_it_ended(training):
    run = training("ppo", "faulty_envs:dies_when_made", *PLAN, "--steps", "100000")
    assert run.end(seconds=60) == 1
    assert run.left() == []
    assert "left with exit code 7 before it was ready" in run.err
    assert "logs" in run.err.lower()
