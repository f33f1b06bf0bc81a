"""``weft status``, ``weft logs`` and ``weft stop``, with a run that is under way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main


@pytest.fixture
def under_way(tmp_path: Path) -> Any:
    """A run that trains until it is stopped."""
    command = [sys.executable, "-m", "weft", "train", "ppo", "weft:CartPole-v1", "--steps", "1000000000", "--envs", "4"]
    command += ["--algo.hidden", "8", "--algo.unroll", "8", "--algo.minibatches", "2"]
    command += ["--root", str(tmp_path), "--run", "r", "--quiet", "--no-tensorboard"]
    process = subprocess.Popen(command)
    until = time.monotonic() + 60.0
    while not (tmp_path / "r" / "metrics.jsonl").exists() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def test_a_run_under_way_is_told_of_and_stopped(under_way: Any, tmp_path: Path, capsys: Any) -> None:
    at = ["--root", str(tmp_path)]
    assert main(["status", "--json", *at]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert (state["run"], state["process"]) == ("r", under_way.pid)
    assert main(["stop", "r", *at]) == 0
    assert under_way.wait(20.0) == 130
    assert "interrupted" in capsys.readouterr().out
    assert main(["status", "r", *at]) == 0
    assert "interrupted" in capsys.readouterr().out
    assert main(["stop", "r", *at]) == 1, "there is nothing to stop"


def test_logs_are_listed_and_printed(tmp_path: Path, capsys: Any) -> None:
    logs = tmp_path / "r" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "r" / "config.json").write_text("{}")
    (logs / "learn-0.log").write_text("one\ntwo\nthree\n")
    at = ["--root", str(tmp_path)]
    assert main(["logs", "r", *at]) == 0
    assert capsys.readouterr().out.split() == ["learn-0"]
    assert main(["logs", "r", "learn-0", "--lines", "2", *at]) == 0
    assert capsys.readouterr().out.split() == ["two", "three"]
    assert main(["logs", "r", "learn-1", *at]) == 2
    assert "known: learn-0" in capsys.readouterr().err
