"""A worker that dies again is replaced by a process that was ready for it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from running import missing

SMALL = ["--envs", "8", "--seed", "1", "--steps", "100000000", "--checkpoint-seconds", "0.5", "--algo.hidden", "16"]


def spares(run) -> set[int]:
    """The processes of the run that wait for a task."""
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return {pid for pid, command in commands.items() if b'"roles"' in command} - set(run.workers().values())


OTHERS = ("act-0", "learn-0")


@pytest.mark.parametrize("name", ["env-0", *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_the_second_death_finds_a_spare(training, name):
    run = training("ppo", "CartPole-v1", "--plan", "env*2 | act | learn", *SMALL)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    assert spares(run) == set(), "a run without deaths has none"
    first = run.kill(name)
    run.wait_for_another(name, first)
    run.wait(lambda: len(spares(run)) == 1, what="a spare")
    run.wait_for_learning(2)
    (spare,) = spares(run)
    second = run.kill(name)
    run.wait_for_another(name, second)
    assert run.workers()[name] == spare
    assert run.has_loaded(name, "jaxlib") == (name != "env-0"), "environments alone never load JAX"
    run.wait(lambda: len(spares(run)) == 1, what="another spare")
    run.wait_for_learning(2)
    left = spares(run)
    assert run.end(signal.SIGINT) == 130
    assert run.left() == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)
    assert run.summary["restarts"] == 2
    assert missing(run.summary["samples"]) == 0
    assert "Traceback" not in (run.folder / "logs" / f"{name}.log").read_text()
