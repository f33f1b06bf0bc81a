"""Training from the command line: what is said where, resuming, being interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import SMALL, Ended, Weft


def test_plain_lines_and_a_closing_that_says_where_the_run_is(train: Weft, here: Path) -> None:
    code, out, err = train("mine:Walk")
    assert (code, out) == (0, "")
    assert re.search(r"^ 25%  16 steps  return – ", err, re.MULTILINE)
    assert "finished: return 10.0 over 4 episodes\n" in err
    assert err.endswith("  run: runs/ppo-mine-Walk-s0\n")
    assert {p.name for p in (here / "runs/ppo-mine-Walk-s0").iterdir()} >= {"config.json", "plan.json", "summary.json"}


def test_quiet_says_nothing(train: Weft) -> None:
    assert train("mine:Walk", "--quiet") == (0, "", "")


def test_json_is_one_line_and_null_where_no_episode_has_ended(train: Weft, here: Path) -> None:
    ended = train("mine:Walk", "--steps", "16", "--json")
    assert ended.code == 0
    summary = ended.json
    assert summary["return_mean"] is None
    assert summary["env_steps"] == 16
    assert summary["exit"] == "finished"
    assert summary == json.loads((here / summary["run"] / "summary.json").read_text())


def test_a_finished_run_is_left_as_it_is(train: Weft, here: Path) -> None:
    first = train("mine:Walk", "--json").json
    kept = [p for p in here.glob("runs/*/**/*.*") if p.name != ".lock"]
    files = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in kept}
    assert len(files) >= 4
    again = train("mine:Walk")
    assert again.code == 0
    assert "was finished before. To go on, ask for more --steps" in again.err
    assert train("mine:Walk", "--json").json == first
    assert train("mine:Walk", "--json", "--steps", "32").json == first  # it has made them all, and more
    assert files == {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}
    assert json.loads((here / first["run"] / "config.json").read_text())["steps"] == 64


def test_more_steps_go_on_with_a_finished_run(train: Weft) -> None:
    still = ("--algo.learning-rate-end", "none")  # a schedule would follow the new number of steps
    train("mine:Walk", *still)
    more = train("mine:Walk", *still, "--steps", "96", "--run", "ppo-mine-Walk-s0")
    assert more.code == 0
    assert "resumed runs/ppo-mine-Walk-s0 at 64 env steps" in more.err
    straight = train("mine:Walk", *still, "--steps", "96", "--run", "straight", "--json").json
    resumed = train("mine:Walk", *still, "--steps", "96", "--json").json
    assert resumed["params_sha256"] == straight["params_sha256"]


def test_another_config_for_a_run_is_refused_with_the_difference(train: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "a")
    before = (here / "runs/a/config.json").read_bytes()
    code, out, err = train("mine:Walk", "--run", "a", "--algo.clip", "0.1", "--seed", "3")
    assert (code, out) == (1, "")
    assert "algo.clip: 0.2 → 0.1\n  seed: 0 → 3\n" in err
    assert "--run" in err
    assert (here / "runs/a/config.json").read_bytes() == before


def test_several_seeds(train: Weft) -> None:
    ended = train("mine:Walk", "--seeds", "2", "--seed", "5")
    assert re.search(r"seed 5: return 10.0 over 4 episodes\n  seed 6: return 10.0", ended.err)


@pytest.mark.parametrize(("name", "code"), [("Interrupts", 130), ("Terminates", 143)])
def test_an_interrupt_saves_and_leaves_and_the_same_command_goes_on(
    train: Weft, here: Path, name: str, code: int
) -> None:
    stopped = train(f"mine:{name}", "--run", "a")
    assert stopped.code == code
    assert "interrupted: saving, then leaving" in stopped.err
    assert "the same command goes on from here" in stopped.err
    summary = json.loads((here / "runs/a/summary.json").read_text())
    assert (summary["exit"], summary["env_steps"]) == ("interrupted", 32)
    assert [p.name for p in (here / "runs/a/checkpoints").iterdir()] == ["000000000002.weft"]
    resumed = train(f"mine:{name}", "--run", "a", "--json").json
    assert (resumed["exit"], resumed["env_steps"], resumed["return_mean"]) == ("finished", 64, 10.0)
    assert "signal" not in resumed


def test_a_second_interrupt_leaves_at_once(train: Weft, here: Path) -> None:
    code, out, err = train("mine:InterruptsTwice", "--run", "a")
    assert (code, out) == (130, "")
    assert err.endswith("weft: interrupted, left at once; what was saved before is kept\n")
    assert not list((here / "runs/a/checkpoints").iterdir())
    assert train("mine:InterruptsTwice", "--run", "a").code == 0  # its lock is free


def test_nothing_but_the_json_on_stdout_whatever_prints(here: Path) -> None:
    """In a process of its own: C libraries hold what they print until the process ends."""
    command = [sys.executable, "-m", "weft", "train", "ppo", "mine:Chatters", *SMALL, "--json"]
    ended = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert Ended(ended.returncode, ended.stdout, ended.stderr).json["exit"] == "finished"
    for noise in ("hello from Python", "hello from C", "UserWarning: a warning"):
        assert noise in ended.stderr


def test_a_live_table_on_a_terminal_and_ctrl_c_in_the_middle(here: Path) -> None:
    """A compiled run, as a user sees it: stderr is a terminal, stdout a pipe; Ctrl-C once it is under way."""
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "weft", "train", "ppo", "weft:CartPole-v1", *SMALL, "--steps", "1e9", "--json"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    metrics = here / "runs/ppo-weft-CartPole-v1-s0/metrics.jsonl"
    deadline = time.monotonic() + 60
    seen = b""
    os.set_blocking(terminal, False)
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") > 3):
        seen += _drain(terminal)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    code = process.wait(30)
    seen += _drain(terminal)
    process.stdout.close()
    os.close(terminal)
    summary = Ended(code, out, "").json
    assert (code, summary["exit"], summary["signal"]) == (130, "interrupted", "SIGINT")
    text = seen.decode(errors="replace")
    assert "\x1b[" in text  # drawn in place
    assert "ppo · weft:CartPole-v1 · env+act+learn · seed 0" in text
    assert "steps/s" in text
    assert "interrupted: saving, then leaving" in text


def _drain(descriptor: int) -> bytes:
    seen = b""
    try:
        while piece := os.read(descriptor, 65536):
            seen += piece
    except (BlockingIOError, OSError):
        pass
    return seen


def test_where_nothing_can_be_written_the_exit_code_still_says_how_it_went(here: Path) -> None:
    """Three commands at once: no reader on stderr, a full stdout, and none at all."""
    train = f"{sys.executable} -m weft train ppo weft:CartPole-v1 {' '.join(SMALL)} --run"
    commands = [f"{train} a 2>/dev/full", f"{train} b --json --quiet >/dev/full", f"{train} c --json --quiet >&-"]
    started = [
        subprocess.Popen(["bash", "-c", command], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    said = [one.communicate(timeout=120)[1] for one in started]
    assert [one.returncode for one in started] == [0, 1, 0]
    assert said[1] == (
        "weft: error: the summary could not be written to stdout: No space left on device. The run finished; it is in "
        "runs/b/summary.json.\n"
    )
    assert said[2] == ""
    assert all(json.loads((here / f"runs/{run}/summary.json").read_text())["exit"] == "finished" for run in "abc")
