"""Processes that environments start: they end with the environment, with its worker, and with the run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from weft.services.family import began_at

SMALL = ["--envs", "4", "--seed", "1", "--algo.hidden", "16", "--vector", "each", "--steps", "100000000"]
WORKERS, INLINE = ["--plan", "env*2 | act | learn"], ["--plan", "inline"]


def numbers(file: Path) -> set[int]:
    return {int(line) for line in file.read_text().split()} if file.exists() else set()


def gone(pids: set[int], seconds: float = 5.0) -> bool:
    """Whether none of these processes is left, within some seconds."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if began_at(pid) is not None]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return not left


@pytest.mark.parametrize(
    ("plan", "name", "number"),
    [
        (WORKERS, "starts", signal.SIGINT),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                (INLINE, "starts_apart", signal.SIGKILL),
                (WORKERS, "starts", signal.SIGKILL),
                (WORKERS, "starts_apart", signal.SIGINT),
                (WORKERS, "starts_apart", signal.SIGKILL),
                (INLINE, "starts", signal.SIGINT),
                (INLINE, "starts", signal.SIGKILL),
                (INLINE, "starts_apart", signal.SIGINT),
            ]
        ),
    ],
)
def test_what_environments_have_started_ends_with_the_run(training, tmp_path, plan, name, number):
    run = training("ppo", f"faulty_envs:{name}", *plan, *SMALL)
    run.wait_for_learning(2)
    time.sleep(1.0)
    started = numbers(tmp_path / "started")
    assert len(started) >= 4
    code = run.end(number)
    assert gone(started)
    assert run.left() == []
    if number == signal.SIGINT:
        assert code == 130
    if (name, number) == ("starts", signal.SIGINT):
        assert started <= numbers(tmp_path / "closed"), "terminate() did nothing in a worker"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["starts_apart", "starts"])
def test_what_a_killed_worker_has_started_ends_with_it(training, tmp_path, name):
    run = training("ppo", f"faulty_envs:{name}", *WORKERS, *SMALL)
    run.wait_for_learning(2)
    time.sleep(1.0)
    env = run.workers()["env-0"]
    children = {int(pid) for pid in Path(f"/proc/{env}/task/{env}/children").read_text().split()}
    assert len(children) == 2
    run.kill("env-0")
    run.wait_for_another("env-0", env)
    assert gone(children)
    run.wait_for_learning(2)
    assert run.end(signal.SIGTERM) == 143
    assert gone(numbers(tmp_path / "started"))
