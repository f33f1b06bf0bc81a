"""Another user of the machine at a run's sockets: nothing is read, nothing is trained on, and a counter grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Training, missing

ARGUMENTS = ["ppo", "weft:CartPole-v1", "--plan", "env+act | learn", "--envs", "8", "--lockstep", "--algo.hidden", "16"]


def listening(pid: int) -> list[int]:
    """The tcp ports on which a process listens."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].partition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes]


def attack(run: Training, seconds: float) -> dict[str, Any]:
    pids = [run.process.pid, *run.workers().values()]
    asked = {"ports": listening(run.process.pid), "pids": pids, "seconds": seconds}
    script = Path(__file__).parent / "attacker.py"
    done = subprocess.run([sys.executable, str(script), json.dumps(asked)], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told | asked


def under_attack(training, steps: int, ended_by: signal.Signals | None = None) -> dict[str, Any]:
    """The summary of a run at whose sockets another user was busy."""
    run = training(*ARGUMENTS, "--steps", str(steps), "--channel", "tcp")
    run.wait_for_learning()
    told = attack(run, 2.0)
    assert run.process.poll() is None, "the attack came too late"
    assert told["uid"] == (65534 if os.getuid() == 0 else os.getuid())
    assert len(told["ports"]) >= 2
    assert told["heard"] == 0
    if os.getuid() == 0:  # of a process of another user only its command line is there to be read
        assert [set(found) for found in told["read"].values()] == [{"cmdline"}] * 3
        workers = [found["cmdline"].split("\0") for found in list(told["read"].values())[1:]]
        assert all(len(words) == 5 and words[3].isdigit() for words in workers)  # python -m weft… DESCRIPTOR
    assert run.end(ended_by, seconds=120) == (0 if ended_by is None else 130)
    summary = run.summary
    assert summary["refused"]["connections"] >= 10
    assert summary["refused"]["messages"] == 0
    assert missing(summary["samples"]) == 0
    assert summary["samples"]["in_flight"] >= 0
    records = [record["refused/connections"] for record in run.records()]
    assert records == sorted(records)
    assert records[-1] == summary["refused"]["connections"]
    return summary


def test_another_user_at_tcp_sockets(training) -> None:
    under_attack(training, 1_000_000_000, signal.SIGINT)


@pytest.mark.slow
def test_an_attack_changes_no_bit_of_the_result(training) -> None:
    attacked = under_attack(training, 200_000)
    quiet = training(*ARGUMENTS, "--steps", "200000", "--channel", "ipc", run="quiet")
    quiet.wait(lambda: len(quiet.workers()) == 2, what="workers")
    assert listening(quiet.process.pid) == []
    assert quiet.end(seconds=120) == 0
    assert quiet.summary["params_sha256"] == attacked["params_sha256"]
    assert quiet.summary["refused"] == {"connections": 0, "messages": 0}
