"""An interrupted run saves and leaves, and goes on to the same end."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "weft", "train", "ppo", "weft:CartPole-v1", "--envs", "8", "--seed", "1", "--json",
           "--steps", "96000", "--algo.unroll", "4", "--algo.epochs", "1", "--algo.minibatches", "1",
           "--algo.hidden", "8", "--no-tensorboard"]  # fmt: skip


def start(root, run):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, "--root", str(root), "--run", run], **pipes)


def finish(process):
    out, err = process.communicate(timeout=120)
    lines = out.splitlines()
    assert len(lines) == 1, f"stdout must be one line of JSON: {out!r}, stderr: {err}"
    return process.returncode, json.loads(lines[0]), err


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_interrupted_and_resumed_is_the_same_run(tmp_path, number):
    code, whole, _ = finish(start(tmp_path, "whole"))
    assert (code, whole["exit"], whole["env_steps"]) == (0, "finished", 96000)

    process = start(tmp_path, "parts")
    metrics, deadline = tmp_path / "parts" / "metrics.jsonl", time.monotonic() + 60
    while not (metrics.exists() and metrics.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, number)
    code, part, err = finish(process)
    assert (code, part["exit"]) == (130, "interrupted")
    assert 0 < part["env_steps"] < 96000
    assert part["params_sha256"] != whole["params_sha256"]
    samples = part["samples"]
    assert samples["produced"] == samples["trained"] == part["env_steps"]
    assert "Traceback" not in err
    assert json.loads((tmp_path / "parts" / "summary.json").read_text())["exit"] == "interrupted"

    code, rest, _ = finish(start(tmp_path, "parts"))
    assert (code, rest["exit"], rest["env_steps"]) == (0, "finished", 96000)
    for name in ("params_sha256", "episodes", "return_mean", "samples"):
        assert rest[name] == whole[name], name
