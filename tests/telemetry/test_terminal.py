"""The live table, drawn into memory and on a pseudo-terminal."""

from __future__ import annotations

import io
import math
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from weft.telemetry.terminal import Terminal

RECORD = {
    "return_mean": 412.34,
    "episode_length_mean": 200.0,
    "episodes": 1234,
    "env_steps_per_second": 45_000.0,
    "learn_steps": 640,
    "loss/policy": -0.0123,
    "time/env": 0.7,
    "time/learn": 0.3,
    "queue/unroll": 0.4,
    "kl": 0.01,
    "note": "[bold]not markup[/]",
}


def screen_of(width: int = 100, total: int | None = 500_000) -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=40, color_system=None, legacy_windows=False)
    return Terminal("ppo · CartPole-v1", total, console=console), out


def last_frame(out: io.StringIO) -> str:
    return out.getvalue().rsplit("\x1b[2K", 1)[-1]


def test_the_table_tells_what_matters() -> None:
    screen, out = screen_of()
    screen.open()
    assert "starting …" in out.getvalue()
    for steps in (100_000, 270_336):
        screen.write({**RECORD, "return_mean": steps / 1000}, steps)
    frame = last_frame(out)
    screen.close()
    for expected in (
        "ppo · CartPole-v1",
        "54%",
        "270,336 / 500,000 steps",
        "5 s left",
        "270.3",
        "▁█",
        "episodes 1,234",
        "45,000 steps/s",
        "learn steps 640",
        "policy -0.0123",
        "env 70%",
        "unroll 40%",
        "kl 0.01",
        "[bold]not markup[/]",
        "env-bound: more environment workers",
    ):
        assert expected in frame, expected


IN_WORKERS = {
    "time/env": 0.2,
    "time/learn": 0.8,
    "busy/env": 0.31,
    "busy/act": 0.86,
    "busy/learn": 0.4,
    "load": 0.7,
    "queue/unroll": 0.125,
    "lag": 0.75,
    "lag_max": 12.0,
    **{f"lag/{n}": 0.5 / 2**n for n in (0, 1, 2, 3, 4, 10, 11, 12)},
}


def test_workers_have_their_busy_time_lag_and_queues() -> None:
    screen, out = screen_of(width=120)
    screen.open()
    screen.write({**RECORD, **IN_WORKERS}, 10)
    frame = last_frame(out)
    screen.close()
    rows = {line.split()[0]: line.rstrip() for line in frame.splitlines() if line.strip()}
    assert "time" not in rows
    assert "act 86% " in rows["busy"]
    assert "env 31% █████" in rows["busy"]
    assert rows["lag"].strip() == (
        "lag     mean 0.750   most 12   0: 50% ████   1: 25% ██   2: 12% █   3: 6% █   4: 3%   10: 0%   and 2 more"
    )
    assert rows["queues"].endswith("unroll 12%")
    assert "lag" not in rows["more"]
    assert "load" not in rows["more"]
    assert "act-bound: larger batches" in frame


def test_each_seed_has_its_return() -> None:
    screen, out = screen_of(width=160)
    screen.open()
    screen.write({**RECORD, **{f"return_mean/{k}": 10.5 + k for k in range(20)}}, 10)
    assert "by seed  10.50  11.50" in last_frame(out)
    assert "21.50  and 8 more" in last_frame(out)
    screen.close()


def test_notes_and_warnings_appear_above() -> None:
    screen, out = screen_of()
    screen.open()
    screen.note("a [note]")
    screen.warn("a warning")
    screen.close()
    assert "a [note]" in out.getvalue()
    assert "warning: a warning" in out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_it_fits_any_width_and_a_run_without_end(width: int) -> None:
    for total in (None, 10):
        screen, out = screen_of(width, total)
        screen.open()
        screen.write(RECORD, 20)
        screen.write({"return_mean": math.nan, "time/env": math.nan}, 30)
        screen.close()
        lines = out.getvalue().replace("\x1b[2K", "\n").splitlines()
        assert all(len(line) <= width + 40 for line in lines)  # control sequences are few


def test_it_starts_no_thread_and_a_second_close_is_harmless() -> None:
    before = threading.active_count()
    screen, _ = screen_of()
    screen.open()
    screen.write(RECORD, 1)
    assert threading.active_count() == before
    screen.close()
    screen.close()


def test_a_redraw_is_cheap() -> None:
    screen, _ = screen_of()
    assert screen.every >= 0.25  # at most four a second
    screen.open()
    screen.write(RECORD, 1)
    times = []
    for steps in range(30):
        began = time.perf_counter()
        screen.write(RECORD, steps)
        times.append(time.perf_counter() - began)
    screen.close()
    assert min(times) < 0.02  # measured 2 ms: half a percent of the time at two a second


def on_a_terminal(code: str) -> tuple[str, int]:
    """Run code with stderr and stdout on a pseudo-terminal; gives what it showed and the exit code."""
    leader, follower = pty.openpty()
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    return shown.decode(), process.wait(timeout=30)


def test_an_exception_leaves_the_terminal_as_it_was() -> None:
    shown, code = on_a_terminal(
        "from weft.telemetry.telemetry import open_telemetry\n"
        "with open_telemetry(title='t', total_steps=10) as telemetry:\n"
        "    telemetry.write({'return_mean': 3.0}, 5)\n"
        "    print('from the environment')\n"
        "    raise KeyboardInterrupt\n"
    )
    assert code != 0
    assert "50%" in shown
    assert "from the environment" in shown
    assert "KeyboardInterrupt" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is there
    assert shown.rindex("KeyboardInterrupt") > shown.rindex("\x1b[2K")  # and the traceback below the table


def test_kill_9_leaves_the_cursor_visible() -> None:
    shown, code = on_a_terminal(
        "import os, signal\n"
        "from weft.telemetry.telemetry import open_telemetry\n"
        "with open_telemetry(title='t', total_steps=10) as telemetry:\n"
        "    telemetry.write({'return_mean': 3.0}, 5)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert code == -9
    assert "50%" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_the_last_evaluation_stays_in_the_table() -> None:
    screen, out = screen_of()
    screen.open()
    one = {"eval/return_mean": 481.5, "eval/return_low": math.nan, "eval/return_high": math.nan, "eval/episodes": 1}
    screen.write({**RECORD, **one, "eval/version": 7}, 100_000)
    screen.write(RECORD, 200_000)
    frame = last_frame(out)
    screen.close()
    assert "481.5  1 episode  version 7" in frame
