"""Closed streams, terminals of few characters, few descriptors, and JSON of runs that fail: never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SMALL, Weft

ROOT = Path(__file__).parents[2]


def shell(here: Path, line: str, **more: str) -> tuple[int, str]:
    """A command line in a shell of its own: its exit code, and what it printed in all."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **more}
    done = subprocess.run(
        ["bash", "-c", line.replace("weft ", f"{sys.executable} -m weft ", 1)],
        cwd=here,
        env=environment,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode, (done.stdout + done.stderr).decode("ascii" if "PYTHONIOENCODING" in more else "utf-8")


def test_a_run_with_closed_streams_trains(here: Path) -> None:
    code, out = shell(here, f"weft train ppo mine:Walk {' '.join(SMALL)} --run a <&- >&- 2>&-")
    assert (code, out) == (0, "")
    assert (here / "runs/a/summary.json").exists()
    assert (here / "runs/a/checkpoints/000000000004.weft").exists()


@pytest.mark.parametrize("line", ["weft algorithms >&-", "weft nope 2>&-", "weft checkpoints nope >&- 2>&-"])
def test_other_commands_with_closed_streams(here: Path, line: str) -> None:
    code, out = shell(here, line)
    assert code == (0 if "algorithms" in line else 2)
    assert "Traceback" not in out


def test_drawings_on_a_terminal_that_has_only_ascii(here: Path) -> None:
    code, out = shell(here, "weft show ppo weft:CartPole-v1 --envs 4", PYTHONIOENCODING="ascii")
    assert code == 0
    assert "Traceback" not in out
    first, *rest = [line for line in out.splitlines() if line.startswith(("+", "|"))]
    assert first.startswith("+- env+act+learn -")
    assert {len(line) for line in rest} == {len(first)}, "the box keeps its shape"
    assert "?" not in out, "every character of a drawing has one that stands for it"


def test_too_few_descriptors_are_said(here: Path) -> None:
    line = f'ulimit -n 40; weft train ppo mine:Walk {" ".join(SMALL)} --run a --plan "env*2 | act | learn"'
    code, out = shell(here, line)
    assert code == 1
    assert "Too many open files: this process may have 40 open at a time" in out
    assert "ulimit -n" in out
    assert "Traceback" not in out
    assert "bug in Weft" not in out


def test_json_of_a_run_that_fails(train: Weft, weft: Weft) -> None:
    ended = train("mine:NotANumber", "--run", "a", "--json")
    assert ended.code == 1
    assert ended.json["exit"] == "failed"
    assert "the reward is nan" in ended.json["error"]
    assert ended.json["run"] == "runs/a"
    ended = train("mine:Walk", "--run", "b", "--root", "mine.py", "--json")  # it never began
    assert ended.code == 1
    assert ended.json == {"exit": "failed", "error": ended.json["error"]}
    assert "cannot use mine.py/b" in ended.json["error"]
    assert weft("train", "ppo", "mine:Walk", "--flag", "--json").out == "", "what cannot be read asks for nothing"
