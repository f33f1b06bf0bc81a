"""Workers killed with -9 while they train: replaced, and every sample accounted for."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from running import missing

SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--checkpoint-seconds", "0.5", "--algo.hidden", "16"]
SECONDS_TO_REPLACE = 20.0  # on an idle machine about one; tests run beside others


def goes_forward(records):
    """Curves never go backwards: what a learner had learned since the last save is taken back from the records."""
    for name in ("env_steps", "learn_steps", "wall_seconds"):
        values = [record[name] for record in records]
        assert values == sorted(values), name


@pytest.mark.parametrize(
    ("algorithm", "plan", "kills"),
    [
        ("ppo", "env*2 | act | learn", ["env-0", "act-0", "learn-0", "env-1"]),
        pytest.param("ppo", "(env+act)*2 | learn", ["env+act-1", "env+act-0"], marks=pytest.mark.slow),
        pytest.param("ppo", "env*2 | act+learn", ["act+learn-0"], marks=pytest.mark.slow),
        pytest.param("a2c", "(env+act+grad)*2 | apply", ["env+act+grad-0", "apply-0"], marks=pytest.mark.slow),
    ],
)
def test_whoever_is_killed_is_replaced_and_no_sample_is_lost_from_sight(training, algorithm, plan, kills):
    run = training(algorithm, "CartPole-v1", "--plan", plan, *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for name in kills:
        pid = run.kill(name)
        run.wait_for_another(name, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    summary = run.summary
    assert summary["exit"] == "interrupted"
    assert summary["restarts"] == len(kills)
    assert missing(summary["samples"]) == 0
    # Learn steps that died with their learner are in neither; steps are counted where they are made.
    assert 0 < summary["samples"]["trained"] <= summary["env_steps"]
    assert summary["samples"]["trained"] % summary["learn_steps"] == 0
    for name in set(kills):
        assert f"worker {name} was killed by SIGKILL" in run.err
    goes_forward(run.records())


@pytest.mark.slow
def test_several_killed_at_once_are_all_replaced(training):
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    before = run.workers()
    jax = {name for name in before if run.has_loaded(name, "jaxlib")}
    assert (set(before) - jax, jax) == ({"env-0", "env-1"}, {"act-0", "learn-0"}), "who steps alone never loads JAX"
    for name in before:
        run.kill(name)
    for name, pid in before.items():
        run.wait_for_another(name, pid, SECONDS_TO_REPLACE)
    run.wait_for_learning(3)
    assert run.end(signal.SIGTERM) == 143
    assert run.left() == []
    assert run.summary["restarts"] >= len(before)
    assert missing(run.summary["samples"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("heard", ["as it happens", "after the other's error"])
def test_one_of_two_learners_killed_brings_both_back(training, heard):
    """The survivor meets an error in what they do together, which must not be taken for the run's."""
    run = training("a2c", "CartPole-v1", "--plan", "env*2 | act | learn*2", *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    before = run.workers()
    if heard == "as it happens":
        run.kill("learn-1")
    else:  # a launcher that has been slow hears of both at once, and of nothing before
        os.kill(before["learn-1"], signal.SIGSTOP)
        time.sleep(1.0)
        run.process.send_signal(signal.SIGSTOP)
        os.kill(before["learn-1"], signal.SIGKILL)
        log = run.folder / "logs" / "learn-0.log"
        run.wait(lambda: "Traceback" in log.read_text(), 20.0, "an error of learn-0")
        run.process.send_signal(signal.SIGCONT)
    for name in ("learn-0", "learn-1"):
        run.wait_for_another(name, before[name], SECONDS_TO_REPLACE)
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert missing(run.summary["samples"]) == 0


def test_in_lockstep_a_death_goes_back_to_the_last_checkpoint(training):
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--lockstep", *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    before = run.workers()
    run.kill("env-1")
    for name, pid in before.items():
        run.wait_for_another(name, pid, SECONDS_TO_REPLACE)
    run.wait_for_learning(3)
    assert run.end(signal.SIGINT) == 130
    assert "worker env-1 was killed by SIGKILL: lockstep replaces all workers" in run.err
    assert "the run goes on from what was saved at" in run.err
    summary = run.summary
    assert missing(summary["samples"]) == 0
    assert summary["samples"]["dropped"] == {}, "in lockstep nothing is ever too old"
    # Act and learn agree on the params and the noise of every unroll, before and after: the first minibatch of the
    # first epoch would show it otherwise, and with it the mean over all.
    assert summary["samples"]["trained"] == summary["env_steps"]
    goes_forward(run.records())


@pytest.mark.slow
def test_a_learner_is_killed_after_the_checkpoints_were_deleted(training):
    """The last state that was saved is still in memory: the run goes on from it, and keeps its records."""
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL, "--checkpoint-seconds", "2")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    run.wait_for_learning(1)
    shutil.rmtree(run.folder / "checkpoints")
    pid = run.kill("learn-0")
    run.wait_for_another("learn-0", pid, SECONDS_TO_REPLACE)
    run.wait_for_learning(2)
    records = run.records()
    assert run.end(signal.SIGINT) == 130
    assert "worker learn-0 was killed by SIGKILL: all learners are replaced" in run.err
    assert "the run goes on from what was saved at" in run.err
    assert "begins again from its start" not in run.err
    assert records[0]["learn_steps"] < 10, "the records from before are still there"
    goes_forward(records)
    assert list((run.folder / "checkpoints").iterdir()), "and saving works again"


@pytest.mark.slow
def test_a_learner_that_is_killed_before_the_first_save_begins_again_and_says_so(training):
    run = training("ppo", "CartPole-v1", "--plan", "(env+act) | learn", *SMALL, "--checkpoint-seconds", "600")
    run.wait_for_learning(3)
    pid = run.kill("learn-0")
    run.wait_for_another("learn-0", pid, SECONDS_TO_REPLACE)
    run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert "nothing was saved yet: the run begins again from its start" in run.err
    assert "goes on from" not in run.err
    assert missing(run.summary["samples"]) == 0
    goes_forward(run.records())
