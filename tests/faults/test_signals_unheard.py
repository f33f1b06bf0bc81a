"""Signals to a run that cannot heed them: it begins, or something in it never ends."""

from __future__ import annotations

import signal
import time

import pytest

SMALL = ["--envs", "4", "--seed", "1", "--algo.hidden", "16", "--vector", "each", "--steps", "100000000"]


def ends(run, number, within):
    """The exit code after a signal, which must come in time."""
    began = time.monotonic()
    code = run.end(number)
    assert time.monotonic() - began < within, run.err
    assert run.left() == []
    assert "Traceback" not in run.err
    return code


def test_an_environment_that_hangs_in_one_process_is_named_and_a_signal_ends_the_run(training):
    run = training("ppo", "faulty_envs:hangs_once", *SMALL, "--hang-seconds", "1", "--checkpoint-seconds", "0.1")
    run.wait(lambda: "has not returned from step() after" in run.err, 60, "the one that hangs being named")
    assert "environment 0 has not returned from step() after 200 steps for 1 s" in run.err
    assert "time.sleep(3600)" in run.err, "where it stands"
    assert ends(run, signal.SIGTERM, 20) == 143
    assert "what was saved before is kept: environment 0 has not returned from step()" in run.err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "within"), [(signal.SIGINT, 130, 12), (signal.SIGTERM, 143, 20)])
def test_an_environment_that_hangs_where_no_python_runs_does_not_keep_the_run(training, number, code, within):
    run = training("ppo", "faulty_envs:hangs_in_c", *SMALL, "--checkpoint-seconds", "0.1")
    run.wait(lambda: (run.folder.parent / "hung").exists(), 60, "one that hangs")
    time.sleep(2.0)
    assert ends(run, number, within) == code
    assert f"{number.name}: waiting for environment 0 has not returned from step()" in run.err


@pytest.mark.parametrize(
    ("plan", "number"),
    [
        ("env*2 | act | learn", signal.SIGTERM),
        pytest.param("inline", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("(env+act)*2 | learn", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("inline", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_while_a_run_begins_ends_it(training, plan, number):
    run = training("ppo", "faulty_envs:hangs_when_made", "--plan", plan, *SMALL)
    logs = run.folder / "logs"
    run.wait(lambda: (run.folder / "config.json").exists() and (plan == "inline" or logs.exists()), what="its folder")
    time.sleep(3.0)
    assert ends(run, number, 10) == 128 + number
    assert (run.summary["exit"], run.summary["env_steps"]) == ("interrupted", 0)


@pytest.mark.slow
def test_a_map_that_never_ends_is_waited_for_in_vain_and_not_for_long(training):
    arguments = ["faulty_algorithms:HangsInMap", "CartPole-v1", "--plan", "(env+act)*2 | relabel | learn"]
    run = training(*arguments, "--envs", "8", "--steps", "100000000", "--lockstep")
    run.wait(lambda: (run.folder.parent / "hung").exists(), 60, "a map that hangs")
    time.sleep(3.0)
    assert ends(run, signal.SIGINT, 13) == 130
    assert "SIGINT: waiting for worker relabel-0 (it is in code of its own)" in run.err
    assert "for worker relabel-0" in run.err.splitlines()[-1]


@pytest.mark.slow
def test_a_second_interrupt_ends_it_at_once(training):
    run = training("ppo", "faulty_envs:hangs_in_c", *SMALL)
    run.wait(lambda: (run.folder.parent / "hung").exists(), 60, "one that hangs")
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert ends(run, signal.SIGINT, 6) == 130
