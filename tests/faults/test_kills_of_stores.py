"""A worker that keeps a replay, and those that feed it, killed with -9: replaced, every sample accounted for."""

from __future__ import annotations

import signal

import pytest
from running import missing

PLAN = "(env+act)*2 | replay+learn"
SMALL = [
    "dqn", "CartPole-v1", "--plan", PLAN, "--envs", "8", "--seed", "1", "--checkpoint-seconds", "0.5",
    "--algo.hidden", "16", "--algo.unroll", "8", "--algo.samples-per-insert", "4", "--algo.learning-begins", "500",
]  # fmt: skip
SECONDS_TO_REPLACE = 20.0  # on an idle machine about one; tests run beside others
KILLS = ["replay+learn-0", "env+act-1", "replay+learn-0"]


@pytest.mark.slow
def test_a_replay_that_is_killed_goes_on_from_its_checkpoint_and_what_was_lost_is_counted(training):
    run = training(*SMALL, "--steps", "100000000")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for worker in KILLS:
        pid = run.kill(worker)
        run.wait_for_another(worker, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130, run.err
    assert run.left() == []
    summary = run.summary
    assert summary["restarts"] == len(KILLS)
    assert missing(summary["samples"]) == 0
    assert all(count >= 0 for count in summary["samples"]["dropped"].values())
    again = training(*SMALL, "--steps", str(summary["env_steps"] + 4000))
    assert again.end(seconds=120) == 0, again.err
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert missing(last["samples"]) == 0
    assert last["samples"]["trained"] > summary["samples"]["trained"]


@pytest.mark.slow
def test_in_lockstep_a_kill_changes_nothing_of_what_is_learned(training):
    arguments = [*SMALL, "--lockstep", "--steps", "40000", "--vector", "each"]
    run = training(*arguments)
    run.wait_for_checkpoint()
    pid = run.kill("replay+learn-0")
    run.wait_for_another("replay+learn-0", pid, SECONDS_TO_REPLACE)
    assert run.end(seconds=120) == 0, run.err
    assert "the run goes on from what was saved at" in run.err
    whole = training(*arguments, run="whole")
    assert whole.end(seconds=120) == 0, whole.err
    assert (run.summary["restarts"], whole.summary["restarts"]) == (1, 0)
    same = ("params_sha256", "learn_steps", "env_steps", "episodes", "samples")
    assert {key: run.summary[key] for key in same} == {key: whole.summary[key] for key in same}
