"""A worker that only looks on, killed with -9: it is replaced, and what is learned is what is learned without it."""

from __future__ import annotations

import pytest

ARGUMENTS = [
    "ppo", "CartPole-v1", "--plan", "(env+act)*2 | learn", "--lockstep", "--steps", "60000", "--envs", "8",
    "--seed", "1", "--algo.hidden", "16", "--algo.unroll", "32", "--algo.epochs", "1",
]  # fmt: skip
LOOKING = ["--eval-every", "2000", "--eval-episodes", "4"]


@pytest.mark.slow
def test_a_kill_of_the_evaluation_changes_nothing_of_what_is_learned(training):
    run = training(*ARGUMENTS, *LOOKING)
    run.wait(lambda: any("eval/version" in record for record in run.records()), what="an evaluation")
    pid = run.kill("evaluate-0")
    run.wait_for_another("evaluate-0", pid, 20.0)
    assert run.end(seconds=120) == 0, run.err
    assert run.left() == []
    plain = training(*ARGUMENTS, run="plain")
    assert plain.end(seconds=120) == 0, plain.err
    same = ("params_sha256", "learn_steps", "env_steps", "episodes", "samples")
    assert {key: run.summary[key] for key in same} == {key: plain.summary[key] for key in same}
    assert (run.summary["restarts"], "the run goes on from" in run.err) == (1, False)
    versions = [record["eval/version"] for record in run.records() if "eval/version" in record]
    assert versions == sorted(set(versions))
    assert versions[-1] == run.summary["learn_steps"] == run.summary["evaluation"]["version"]
