"""A run's folder is deleted, moved, taken by another run, or cannot be written to, while the run trains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest

from weft.services.run_folder import open_run

LIVE = ["--envs", "4", "--algo.unroll", "8", "--algo.minibatches", "1", "--algo.epochs", "1", "--algo.hidden", "8"]
LIVE += ["--steps", "100000000", "--checkpoint-seconds", "1", "--vector", "each"]


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB where the run's folder will be."""
    folder = tmp_path / "r"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_on_a_disk_that_is_full_training_goes_on_and_saving_recovers(small_disk, training):
    run = training("ppo", "CartPole-v1", *LIVE)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    run.wait(lambda: "No space left on device. Free some space" in run.err, what="a warning of a save")
    run.wait(lambda: "Jsonl: [Errno 28]" in run.err, what="a warning of a record")
    (small_disk / "filler").unlink()
    run.wait(lambda: "saving works again" in run.err and "Jsonl: works again" in run.err, what="recovery")
    assert run.end(signal.SIGINT) == 130
    assert run.summary["saved_learn_steps"] == run.summary["learn_steps"]
    assert not list(small_disk.rglob("*.tmp")), "half a checkpoint is not left behind"
    assert "Traceback" not in run.err


def gone(folder) -> None:
    """Delete a folder at once: while its files go one by one, the run would write others."""
    away = folder.rename(folder.with_name("away"))
    shutil.rmtree(away)


@pytest.mark.slow
def test_a_folder_that_is_deleted_is_made_again_and_the_run_resumes_from_it(training):
    run = training("ppo", "CartPole-v1", *LIVE)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    gone(run.folder)
    run.wait_for_checkpoint()
    run.wait(lambda: len(run.records()) > 2, what="records in the new folder")
    assert run.end(signal.SIGINT) == 130
    assert "metrics.jsonl" in run.err.splitlines()[0], "lost records are said at once"
    assert "had been removed or moved: it was made again" in run.err
    assert "Jsonl: works again; records lost: " in run.err
    assert "Traceback" not in run.err
    made = json.loads((run.folder / "summary.json").read_text())
    assert made["saved_learn_steps"] == made["learn_steps"] > 0
    again = training("ppo", "CartPole-v1", *LIVE)
    again.wait_for_learning(2)
    assert again.end(signal.SIGINT) == 130
    assert again.summary["learn_steps"] > made["learn_steps"]
    assert again.summary["id"] == made["id"]


@pytest.mark.slow
def test_a_folder_that_another_run_has_taken_is_not_touched(training, tmp_path):
    run = training("ppo", "CartPole-v1", *LIVE)
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    gone(run.folder)
    with open_run(tmp_path, "r", {"another": "run"}, {}):
        before = contents(run.folder)
        run.wait(lambda: "is in use by another process" in run.err, what="a warning")
        assert run.end(signal.SIGINT) == 1
        assert contents(run.folder) == before
    assert "Training goes on; saving is tried again in 1 s" in run.err
    assert "Traceback" not in run.err


@pytest.mark.slow
def test_a_folder_that_is_moved_away_and_back(training, tmp_path):
    run = training("ppo", "CartPole-v1", *LIVE, "--checkpoint-seconds", "600")
    run.wait_for_learning(2)
    run.folder.rename(tmp_path / "elsewhere")
    run.wait(lambda: "records are lost until it works again" in run.err, what="a warning")
    (tmp_path / "elsewhere").rename(run.folder)
    run.wait(lambda: "Jsonl: works again" in run.err, what="recovery")
    assert run.end(signal.SIGINT) == 130
    assert run.summary["saved_learn_steps"] == run.summary["learn_steps"]


@pytest.mark.slow
def test_a_worker_whose_log_cannot_be_opened_is_replaced_all_the_same(training):
    """As in a folder that became read-only, which it never is for the superuser: a file is where logs were."""
    run = training("ppo", "CartPole-v1", *LIVE, "--plan", "(env+act) | learn")
    run.wait_for_learning(2)
    run.wait_for_checkpoint()
    workers = run.workers()
    shutil.rmtree(run.folder / "logs")
    (run.folder / "logs").write_text("in the way")
    os.kill(workers["env+act-0"], signal.SIGKILL)
    run.wait(lambda: "Worker env+act-0 runs without a log" in run.err, what="a warning")
    run.wait_for_learning(3)
    assert run.end(signal.SIGINT) == 130
    assert "Traceback" not in run.err
    assert run.summary["restarts"] == 1
