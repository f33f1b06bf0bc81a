"""Workers that are killed, and signals that come, while a run goes over to other replicas: nothing is lost or left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import missing

from weft.services.scale_request import ScaleRequest, post

pytestmark = pytest.mark.slow

SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--algo.hidden", "16"]


def asked(run: Any, counts: dict[str, int]) -> None:
    """Ask for replicas, and wait until the first worker of the new plan is there."""
    before = set(run.workers().values())
    post(run.folder, ScaleRequest(run.process.pid, counts))
    run.wait(lambda: set(run.workers().values()) - before, what="workers of the new plan")


def plan(run: Any) -> str:
    return str(json.loads((run.folder / "plan.json").read_text())["expression"])


@pytest.mark.parametrize("worker", ["env-3", "act-0", "learn-0"])
def test_workers_that_cannot_begin_are_gone_back_from(training: Any, tmp_path: Path, worker: str) -> None:
    """One is killed before it is ready: the old plan goes on from the same state, and the command says why."""
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    run.wait_for_learning(2)
    before, learned = set(run.workers().values()), run.records()[-1]["learn_steps"]
    command = [sys.executable, "-m", "weft", "scale", "r", "env=4", "--root", str(tmp_path)]
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    run.wait(lambda: run.workers().get(worker, next(iter(before))) not in before, what="workers of the new plan")
    run.kill(worker)
    said = asking.communicate(timeout=60)[1]
    assert asking.returncode == 1
    assert f"was not scaled: worker {worker} was killed by SIGKILL before it was ready" in said
    run.wait_for_learning(4)
    assert plan(run) == "env*2 | act | learn"
    assert run.records()[-1]["learn_steps"] > learned
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert missing(run.summary["samples"]) == 0


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_meanwhile_saves_and_ends(training: Any, signal_: signal.Signals) -> None:
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    run.wait_for_learning(2)
    asked(run, {"env": 4})
    assert run.end(signal_) == 128 + signal_
    assert run.left() == []
    assert run.summary["exit"] == "interrupted"
    assert run.summary["saved_learn_steps"] == run.summary["learn_steps"] > 0
    assert missing(run.summary["samples"]) == 0


def test_the_head_killed_meanwhile_goes_on_from_what_was_saved(training: Any, tmp_path: Path) -> None:
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    run.wait_for_learning(2)
    asked(run, {"env": 4})
    run.process.kill()
    run.process.wait()
    again = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    again.wait_for_learning(2)
    assert again.records()[0]["env_steps"] > 0
    assert plan(again) == "env*2 | act | learn"
    assert again.end(signal.SIGINT) == 130
    assert run.left() == []
    assert missing(again.summary["samples"]) == 0
