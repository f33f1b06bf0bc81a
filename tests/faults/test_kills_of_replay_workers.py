"""Workers of a replay of its own, of its learner and of those that feed it, killed with -9: learning goes on."""

from __future__ import annotations

import signal
from math import ceil

import pytest
from running import missing

SMALL = [
    "dqn", "CartPole-v1", "--envs", "8", "--seed", "1", "--checkpoint-seconds", "0.5", "--algo.prioritised", "true",
    "--algo.hidden", "16", "--algo.unroll", "8", "--algo.samples-per-insert", "4", "--algo.learning-begins", "500",
]  # fmt: skip
SECONDS_TO_REPLACE = 20.0  # on an idle machine about one; tests run beside others
ONE, SHARDS = "(env+act)*2 | replay | learn", "(env+act)*2 | replay*2 | learn"
APART, BESIDE = "(env+act)*2 | replay*2 | learn*2", "(env+act)*2 | (replay+learn)*2"


def killed(run, workers, learners=1):
    """The summary of a run after these were killed, one after the other, each when learning went on."""
    run.wait_for_learning(2)
    for worker in workers:
        pid = run.kill(worker)
        run.wait_for_another(worker, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130, run.err
    assert run.left() == []
    summary = run.summary
    if learners == 1:
        assert summary["restarts"] == len(workers)
    else:  # with one of them all are replaced
        assert summary["restarts"] >= len(workers)
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
@pytest.mark.parametrize(
    ("plan", "workers"),
    [
        (APART, ["learn-1", "replay-0", "learn-0", "env+act-1"]),
        ("(env+act)*2 | replay | learn*2", ["replay-0", "learn-1"]),
        (BESIDE, ["replay+learn-1", "env+act-0", "replay+learn-0"]),
    ],
)
def test_one_of_several_learners_or_of_their_shards_is_killed_and_the_run_goes_on(training, plan, workers):
    arguments = [*SMALL, "--plan", plan]
    run = training(*arguments, "--steps", "100000000")
    run.wait_for_checkpoint()
    summary = killed(run, workers, learners=2)
    assert summary["samples"]["dropped"]
    again = training(*arguments, "--steps", str(summary["env_steps"] + 4000))
    assert again.end(seconds=120) == 0, again.err
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert missing(last["samples"]) == 0
    assert last["samples"]["trained"] > summary["samples"]["trained"]


@pytest.mark.slow  # tests/conformance has the same workers in lockstep
@pytest.mark.parametrize("plan", [APART, "(env+act)*2 | replay | learn*2"])
def test_several_learners_draw_as_often_as_one_would(training, plan):
    run = training(*SMALL, "--plan", plan, "--steps", "20000")
    assert run.end(seconds=120) == 0, run.err
    assert run.left() == []
    assert missing(run.summary["samples"]) == 0
    assert run.summary["samples"]["dropped"] == {}
    assert run.summary["learn_steps"] == (ceil(20_000 / 64) - 7) * 2  # 4 samples of 64 steps are 2 batches of 128
    last = run.records()[-1]
    for shard in ("replay-0", "replay-1"):
        inserted, sampled = (last[f"{shard}/{what}"] for what in ("inserted", "sampled"))
        assert sampled / (inserted - 7 * 32) == pytest.approx(4.0, rel=0.05)  # what fills it allows nothing
        assert last[f"{shard}/refused"] == 0  # all that learners told came to the shard that had drawn it


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
