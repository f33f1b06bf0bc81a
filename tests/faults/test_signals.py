"""How runs with workers end: by signals, saved and resumable; by the launcher's death, without a trace."""

from __future__ import annotations

import os
import signal
import time

import pytest
from running import missing

ARGUMENTS = ["ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--envs", "8", "--seed", "1", "--algo.hidden", "16"]


def test_a_signal_ends_a_run_that_is_saved_and_goes_on(training):
    """SIGTERM; the runs of test_kills.py are ended by SIGINT. Other episodes are played after it than before."""
    arguments = ["ppo", "faulty_envs:notes_seeds", *ARGUMENTS[2:], "--vector", "each"]
    run = training(*arguments, "--steps", "100000000")
    run.wait_for_learning(2)
    began = time.monotonic()
    assert run.end(signal.SIGTERM) == 143
    assert time.monotonic() - began < 20
    assert run.left() == []
    first = run.summary
    assert (first["exit"], first["signal"]) == ("interrupted", "SIGTERM")
    assert first["env_steps"] > 0
    more = first["env_steps"] + 4096
    again = training(*arguments, "--steps", str(more))
    assert again.end(seconds=120) == 0
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert last["env_steps"] >= more
    assert missing(last["samples"]) == 0
    batch = first["samples"]["trained"] / first["learn_steps"]
    assert last["samples"]["trained"] == last["learn_steps"] * batch, "what was trained on before is in the ledger"
    assert last["samples"]["produced"] > first["samples"]["trained"]
    assert "resumed, but not exactly: all environments begin a fresh episode" in again.err
    # Seed 0 is that of the launcher, which looks at what a reset gives.
    seeds = [seed for seed in (run.folder.parent / "seeds").read_text().split() if seed != "0"]
    assert len(seeds) == len(set(seeds)) == 16


@pytest.mark.slow
def test_a_learner_that_dies_while_the_run_ends_takes_nothing_from_the_ledger(training):
    """The run goes back to a checkpoint and ends there, without another report."""
    run = training(*ARGUMENTS, "--steps", "100000000", "--checkpoint-seconds", "0.5")
    run.wait_for_checkpoint()
    run.wait_for_learning(2)
    learner = run.workers()["learn-0"]
    os.kill(learner, signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    os.kill(learner, signal.SIGKILL)
    assert run.end() == 130
    assert run.left() == []
    summary = run.summary
    assert summary["restarts"] == 1
    assert missing(summary["samples"]) == 0
    assert 0 < summary["samples"]["trained"] <= summary["env_steps"]
    assert "learner died" in summary["samples"]["dropped"]


@pytest.mark.slow
def test_a_signal_while_a_run_in_lockstep_begins_again_ends_it_as_it_was(training):
    """Workers that have just begun cannot say where they stand; nor need they, for nothing has happened since."""
    run = training(*ARGUMENTS, "--steps", "100000000", "--lockstep")
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    first = run.summary
    again = training(*ARGUMENTS, "--steps", "100000000", "--lockstep")
    again.wait(lambda: len(again.workers()) >= 2, what="workers")
    assert again.end(signal.SIGINT) == 130
    assert again.left() == []
    same = ("env_steps", "params_sha256", "samples", "episodes")
    assert {name: again.summary[name] for name in same} == {name: first[name] for name in same}


@pytest.mark.slow
def test_a_signal_to_the_whole_group_while_workers_start_is_the_launchers_alone(training):
    """As a terminal's Ctrl-C is: workers that have not yet got as far as to ignore it must not die of it."""
    run = training(*ARGUMENTS, "--steps", "100000000")
    run.wait(lambda: len(run.workers()) >= 2, what="workers")
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 130, run.err
    assert "before it was ready" not in run.err
    assert run.left() == []


def test_when_the_launcher_is_killed_its_workers_are_gone_in_seconds(training):
    run = training(*ARGUMENTS, "--steps", "100000000")
    run.wait_for_learning(1)
    assert len(run.workers()) == 4
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 5
    while run.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.left() == []
