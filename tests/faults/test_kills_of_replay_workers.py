"""Workers of a replay of its own, of its learner and of those that feed it, killed with -9: learning goes on."""

from __future__ import annotations

import signal

import pytest
from running import missing

SMALL = [
    "dqn", "CartPole-v1", "--envs", "8", "--seed", "1", "--checkpoint-seconds", "0.5", "--algo.prioritised", "true",
    "--algo.hidden", "16", "--algo.unroll", "8", "--algo.samples-per-insert", "4", "--algo.learning-begins", "500",
]  # fmt: skip
SECONDS_TO_REPLACE = 20.0  # on an idle machine about one; tests run beside others
ONE, SHARDS = "(env+act)*2 | replay | learn", "(env+act)*2 | replay*2 | learn"


def killed(run, workers):
    """The summary of a run after these were killed, one after the other, each when learning went on."""
    run.wait_for_learning(2)
    for worker in workers:
        pid = run.kill(worker)
        run.wait_for_another(worker, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130, run.err
    assert run.left() == []
    summary = run.summary
    assert summary["restarts"] == len(workers)
    assert missing(summary["samples"]) == 0
    assert all(count >= 0 for count in summary["samples"]["dropped"].values())
    return summary


def test_a_replay_that_was_never_saved_fills_anew_and_what_it_held_is_counted_as_lost(training):
    run = training(*SMALL, "--plan", ONE, "--steps", "100000000", "--checkpoint-seconds", "600")
    assert killed(run, ["replay-0"])["samples"]["dropped"]["worker died"] >= 500


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["shm", "tcp"])
def test_a_shard_that_is_killed_goes_on_from_what_was_saved_and_so_does_the_run(training, channel):
    arguments = [*SMALL, "--plan", SHARDS, "--channel", channel]
    run = training(*arguments, "--steps", "100000000")
    run.wait_for_checkpoint()
    summary = killed(run, ["replay-0", "learn-0", "env+act-1", "replay-1"])
    assert summary["samples"]["dropped"]["worker died"] > 0
    again = training(*arguments, "--steps", str(summary["env_steps"] + 4000))
    assert again.end(seconds=120) == 0, again.err
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert missing(last["samples"]) == 0
    assert last["samples"]["trained"] > summary["samples"]["trained"]


@pytest.mark.slow
def test_in_lockstep_a_kill_changes_nothing_of_what_is_learned(training):
    arguments = [*SMALL, "--plan", ONE, "--lockstep", "--steps", "40000", "--vector", "each"]
    run = training(*arguments)
    run.wait_for_checkpoint()
    pid = run.kill("replay-0")
    run.wait_for_another("replay-0", pid, SECONDS_TO_REPLACE)
    assert run.end(seconds=120) == 0, run.err
    assert "the run goes on from what was saved at" in run.err
    whole = training(*arguments, run="whole")
    assert whole.end(seconds=120) == 0, whole.err
    assert (run.summary["restarts"], whole.summary["restarts"]) == (1, 0)
    same = ("params_sha256", "learn_steps", "env_steps", "episodes", "samples")
    assert {key: run.summary[key] for key in same} == {key: whole.summary[key] for key in same}
