"""Workers with fragments of one's own, and others beside them, killed with -9: replaced, every sample accounted for."""

from __future__ import annotations

import signal

import pytest
from running import missing

SMALL = ["--envs", "8", "--seed", "1", "--checkpoint-seconds", "0.5", "--algo.hidden", "16"]
SECONDS_TO_REPLACE = 20.0  # on an idle machine about one; tests run beside others

APART = "(env+act)*2 | relabel*2 | learn"
CASES = [
    ("CentredOnHost", APART, ["relabel-1", "env+act-0", "learn-0", "relabel-0"]),
    ("Centred", APART, ["relabel-0", "learn-0", "relabel-1"]),
    ("Doubled", "env*2 | act | relabel | learn", ["relabel-0", "env-1", "act-0", "learn-0", "relabel-0"]),
    ("Filtered", "env*2 | act | relabel | learn", ["relabel-0", "learn-0", "act-0"]),
    ("Chained", "(env+act)*2 | relabel | count | learn", ["count-0", "relabel-0", "learn-0"]),
    ("CentredOnHost", "(env+act)*2 | relabel+learn", ["relabel+learn-0", "env+act-1"]),
    ("Reading", "(env+act+relabel)*2 | learn", ["env+act+relabel-0", "learn-0"]),
    ("ClippedOnHost", "(env+act+grad)*2 | clip | apply", ["clip-0", "env+act+grad-1", "apply-0", "clip-0"]),
    ("RoundedOnHost", "(env+act)*2 | round | learn", ["round-0", "learn-0", "round-0"]),
    ("Mapped", "env+learn | act", ["act-0", "env+learn-0"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plan", "kills"), CASES)
def test_whichever_is_killed_is_replaced_and_the_run_finishes(training, name, plan, kills):
    arguments = [f"mapped:{name}", "CartPole-v1", "--plan", plan, *SMALL]
    run = training(*arguments, "--steps", "100000000")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for worker in kills:
        pid = run.kill(worker)
        run.wait_for_another(worker, pid, SECONDS_TO_REPLACE)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130, run.err
    assert run.left() == []
    summary = run.summary
    assert summary["restarts"] == len(kills)
    assert missing(summary["samples"]) == 0
    assert all(count >= 0 for count in summary["samples"]["dropped"].values())
    for worker in set(kills):
        assert f"worker {worker} was killed by SIGKILL" in run.err
    more = summary["env_steps"] + 4000
    again = training(*arguments, "--steps", str(more))
    assert again.end(seconds=120) == 0, again.err
    assert again.left() == []
    last = again.summary
    assert last["exit"] == "finished"
    assert missing(last["samples"]) == 0
    assert last["samples"]["trained"] > summary["samples"]["trained"]


LOCKSTEP = [
    ("CentredOnHost", "(env+act)*2 | relabel | learn", "relabel-0"),
    ("Filtered", "env*2 | act | relabel | learn", "act-0"),
    ("Doubled", "(env+act)*2 | relabel | learn", "relabel-0"),
    ("ClippedOnHost", "(env+act)*2 | grad*2 | clip | apply", "clip-0"),
    ("RoundedOnHost", "(env+act)*2 | round | learn", "round-0"),
]


@pytest.mark.parametrize(
    ("name", "plan", "killed"),
    [pytest.param(*case, marks=[pytest.mark.slow]) for case in LOCKSTEP],
)
@pytest.mark.slow
def test_in_lockstep_a_kill_changes_nothing_of_what_is_learned(training, name, plan, killed):
    arguments = [
        f"mapped:{name}",
        "CartPole-v1",
        "--plan",
        plan,
        *SMALL,
        "--lockstep",
        "--steps",
        "12000",
        "--vector",
        "each",
    ]
    run = training(*arguments)
    run.wait_for_checkpoint()
    pid = run.kill(killed)
    run.wait_for_another(killed, pid, SECONDS_TO_REPLACE)
    assert run.end(seconds=120) == 0, run.err
    assert f"worker {killed} was killed by SIGKILL: lockstep replaces all workers" in run.err
    assert "the run goes on from what was saved at" in run.err
    whole = training(*arguments, run="whole")
    assert whole.end(seconds=120) == 0, whole.err
    assert (run.summary["restarts"], whole.summary["restarts"]) == (1, 0)
    same = ("params_sha256", "env_steps", "episodes", "samples")
    assert {key: run.summary[key] for key in same} == {key: whole.summary[key] for key in same}
    assert missing(run.summary["samples"]) == 0
