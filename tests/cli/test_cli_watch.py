"""``weft watch`` and ``weft train --dashboard``, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from weft.cli.main import main


def weft(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "weft", *arguments]


def test_it_serves_until_it_is_interrupted_and_loads_no_jax(tmp_path):
    process = subprocess.Popen(weft("watch", "--root", str(tmp_path), "--port", "0"), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url.replace("/?", "/api/runs?"), timeout=10) as answer:
            assert answer.status == 200
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "jaxlib" not in maps
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        process.stdout.close()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-run"], "run 'no-such-run'"),
        (["--host", "203.0.113.1", "--port", "1"], "cannot listen on 203.0.113.1:1"),
        (["--token", "short"], "at least 16"),
        (["--port", "70000"], "70000"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, arguments, said):
    assert main(["watch", "--root", str(tmp_path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_dashboard_beside_a_run_ends_with_it(tmp_path):
    """Also where the run is killed: its process is not asked."""
    command = weft("train", "ppo", "weft:CartPole-v1", "--steps", "1_000_000_000", "--run", "beside", "--quiet")
    command += ["--root", str(tmp_path), "--dashboard", "--no-tensorboard"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert run.stderr is not None
        words = run.stderr.readline().decode()
        assert words.startswith("dashboard: http://127.0.0.1:")
        url = words.partition(" ")[2].strip().replace("/?", "/api/runs?")
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200
        run.kill()
        run.wait()
        deadline = time.monotonic() + 10
        while _answers(url):
            assert time.monotonic() < deadline, "the dashboard has outlived its run"
            time.sleep(0.05)
    finally:
        run.kill()
        run.wait()
        run.stderr.close()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True
