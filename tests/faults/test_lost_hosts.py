"""Hosts that are killed, agent and workers: their workers go on elsewhere, and every sample is accounted for."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from running import missing

SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--checkpoint-seconds", "0.5", "--algo.hidden", "16"]


def agents(run: Any) -> dict[int, list[str]]:
    """By the process of each agent, the workers that it has."""
    found: dict[int, list[str]] = {}
    for child in children(run.process.pid):
        if b"cluster.agent" in Path(f"/proc/{child}/cmdline").read_bytes():
            logs = [Path(os.readlink(f"/proc/{c}/fd/1")) for c in children(child)]
            found[child] = sorted(log.stem for log in logs if log.suffix == ".log")
    return found


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_host_of(run: Any, worker: str) -> None:
    """Kill the agent of the host that has a worker; wait until another host has it."""
    agent = next(pid for pid, workers in agents(run).items() if worker in workers)
    os.kill(agent, signal.SIGKILL)
    until = time.monotonic() + 30.0
    while not any(worker in workers for pid, workers in agents(run).items() if pid != agent):
        assert time.monotonic() < until, f"{worker} did not come back: {run.process.poll()}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "kills",
    [["act-0", "learn-0"], pytest.param(["act-0", "learn-0", "env-1"] * 4, marks=pytest.mark.slow)],
)
def test_the_workers_of_a_lost_host_go_on_elsewhere(training: Any, kills: list[str]) -> None:
    hosts = str(3 + len(kills))
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--on", f"processes:{hosts}", *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    for worker in kills:
        kill_host_of(run, worker)
        run.wait_for_learning(2)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    summary = run.summary
    assert summary["exit"] == "interrupted"
    assert summary["restarts"] >= len(kills)
    assert missing(summary["samples"]) == 0
    assert summary["samples"]["trained"] % summary["learn_steps"] == 0
