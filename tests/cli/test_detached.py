"""``weft train --detach``: a run that goes on without the process that started it, or says why it did not begin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main
from weft.services.run_owner import owner_of

FOREVER = [
    "--steps",
    "1000000000",
    "--envs",
    "4",
    "--algo.hidden",
    "8",
    "--algo.unroll",
    "8",
    "--algo.minibatches",
    "2",
]
SECONDS = 120.0

RAISES = """
import time
from pathlib import Path
import gymnasium as gym

def refuses():
    raise ValueError("no licence")

def waits():
    Path("waiting").touch()
    time.sleep(60.0)
"""


def detached(root: Path, environment: str, *more: str) -> subprocess.CompletedProcess[str]:
    """``weft train --detach`` in a process of its own, as from a shell that reads its output."""
    command = [*command_of(environment, root), *more]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS, check=False)


def command_of(environment: str, root: Path) -> list[str]:
    command = [sys.executable, "-m", "weft", "train", "ppo", environment, *FOREVER, "--no-tensorboard", "--detach"]
    return [*command, "--root", str(root), "--run", "r"]


@pytest.fixture(autouse=True)
def _ends(tmp_path: Path) -> Iterator[None]:
    """Whatever a test detached is ended after it."""
    yield
    owner = owner_of(tmp_path / "r")
    if owner is not None:
        os.kill(owner, signal.SIGKILL)
        awaited(lambda: owner_of(tmp_path / "r") is None)


def awaited(holds: Any) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_it_goes_on_alone_and_is_followed_and_stopped(tmp_path: Path, capsys: Any) -> None:
    began = detached(tmp_path, "weft:CartPole-v1", "--json")
    assert (began.returncode, began.stderr) == (0, "")
    told = json.loads(began.stdout)
    folder = tmp_path / "r"
    assert told == {"run": "r", "folder": str(folder), "process": owner_of(folder)}
    assert os.getsid(told["process"]) == told["process"], "a terminal's Ctrl-C and end reach its own session only"
    again = detached(tmp_path, "weft:CartPole-v1")
    assert again.returncode == 1
    assert f"in use by another process ({told['process']})" in again.stderr
    awaited((folder / "metrics.jsonl").exists)
    at = ["--root", str(tmp_path)]
    assert main(["stop", "r", *at]) == 0
    capsys.readouterr()
    assert main(["logs", "r", "--follow", *at]) == 0
    printed = capsys.readouterr().out
    assert "steps/s" in printed
    assert printed.index("interrupted: saving") < printed.index("interrupted: return")
    assert json.loads((folder / "summary.json").read_text())["exit"] == "interrupted"


def test_what_keeps_it_from_beginning_is_said_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RAISES)
    refused = detached(tmp_path, "mine:refuses")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "ValueError: no licence" in refused.stderr
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_ctrl_c_while_it_begins_ends_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RAISES)
    command = command_of("mine:waits", tmp_path)
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    awaited((tmp_path / "waiting").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "interrupted" in said
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_one_that_is_finished_is_left_as_it_is(tmp_path: Path) -> None:
    few = [*command_of("weft:CartPole-v1", tmp_path), "--steps", "32"]
    few.remove("--detach")
    assert subprocess.run(few, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    again = detached(tmp_path, "weft:CartPole-v1", "--steps", "32")
    assert again.returncode == 0
    assert "was finished before" in again.stderr


def test_a_dashboard_would_end_with_the_command(tmp_path: Path, capsys: Any) -> None:
    assert main(["train", "ppo", "weft:CartPole-v1", "--detach", "--dashboard", "--root", str(tmp_path)]) == 2
    assert "weft watch" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", "processes:2", "ray"])
def test_workers_go_on_without_the_command_and_end_with_stop(on: str, tmp_path: Path, capsys: Any) -> None:
    if on == "ray":
        pytest.importorskip("ray")
    began = detached(tmp_path, "CartPole-v1", "--plan", "env*2 | act | learn", "--on", on)
    assert began.returncode == 0, began.stderr
    assert f"weft stop r --root {tmp_path}" in began.stdout
    awaited((tmp_path / "r" / "metrics.jsonl").exists)
    assert main(["stop", "r", "--root", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["exit"] == "interrupted"
    samples = summary["samples"]
    assert samples["produced"] == samples["trained"] + sum(samples["dropped"].values()) + samples["in_flight"]
