"""A run's second home: copied with its checkpoints, fetched where the folder is missing, never mixed with another's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest

import weft
from weft.cli.main import main
from weft.core.errors import RunError
from weft.services.mirror import Mirror

SMALL: dict[str, Any] = {"envs": 8, "seed": 1, "quiet": True, "tensorboard": False, "checkpoint_seconds": 0.0}


def train(root: Path, url: str, steps: int, run: str = "r", **more: Any) -> weft.Run:
    ppo = weft.PPO(unroll=8, hidden=(8,), epochs=1, minibatches=1)
    return weft.train(ppo, "weft:CartPole-v1", steps=steps, root=root, run=run, mirror=url, **(SMALL | more))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in (folder / "checkpoints").iterdir())


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'there'}"


def test_a_machine_without_the_folder_goes_on_where_the_other_ended(tmp_path: Path, url: str) -> None:
    here, there, other = tmp_path / "here", tmp_path / "there" / "r", tmp_path / "other"
    whole = train(tmp_path / "whole", f"file://{tmp_path / 'whole-there'}", 1024)
    first = train(here, url, 512)
    assert names(there) == names(here / "r")
    assert {path.name for path in there.glob("*.json*")} >= {
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "plan.json",
    }
    shutil.rmtree(here)
    last = train(other, url, 1024)
    assert last.summary["id"] == first.summary["id"]
    assert (last.summary["env_steps"], last.summary["params_sha256"]) == (1024, whole.summary["params_sha256"])
    assert names(there) == names(other / "r"), "what was removed here is removed there"
    again = train(tmp_path / "third", url, 1024)  # finished: fetched, and opened as it is
    assert again.summary["params_sha256"] == last.summary["params_sha256"]


def test_a_place_in_memory(tmp_path: Path) -> None:
    train(tmp_path, "memory://runs", 256)
    found = fsspec.filesystem("memory").ls("/runs/r/checkpoints", detail=False)
    assert [Path(path).name for path in found] == [path.name for path in sorted((tmp_path / "r/checkpoints").iterdir())]


def test_runs_are_not_mixed(tmp_path: Path, url: str) -> None:
    train(tmp_path / "one", url, 256)
    train(tmp_path / "two", f"{url}-two", 256)
    with pytest.raises(RunError, match="is another run than"):
        train(tmp_path / "two", url, 512)
    with pytest.raises(RunError, match="--fresh: a run is at"):
        train(tmp_path / "one", url, 256, fresh=True)
    train(tmp_path / "elsewhere", url, 512)
    with pytest.raises(RunError, match=r"is further than .*: learn step 8 there, 4 here"):
        train(tmp_path / "one", url, 512)


def test_what_a_run_has_not_is_left_there(tmp_path: Path, url: str) -> None:
    train(tmp_path / "one", url, 256)
    there = tmp_path / "there" / "r"
    (there / "checkpoints" / "notes.txt").write_text("mine")
    (there / "evil.py").write_text("raise SystemExit")
    train(tmp_path / "two", url, 512)
    assert not (tmp_path / "two" / "r" / "evil.py").exists()
    assert "checkpoints/notes.txt" not in names(tmp_path / "two" / "r")
    assert (there / "checkpoints" / "notes.txt").read_text() == "mine"


def test_a_place_that_fails_is_told_of_and_tried_again(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "r"
    train(tmp_path, f"{url}-other", 256)
    mirror = Mirror(url, "r")
    there = tmp_path / "there" / "r"
    shutil.rmtree(there)
    there.write_text("a file where the folder was")
    assert "cannot copy to" in mirror.tried(folder)
    there.unlink()
    (there / "checkpoints").mkdir(parents=True)
    assert mirror.tried(folder) == ""
    assert names(there) == names(folder)


@pytest.mark.parametrize("bad", ["nowhere://x/y", "file:///proc/none/runs"])
def test_a_place_that_cannot_be_used_is_refused_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    arguments = ["train", "ppo", "weft:CartPole-v1", "--steps", "256", "--root", str(tmp_path), "--mirror", bad]
    assert main(arguments) != 0
    assert f"--mirror {bad}: cannot write there" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing was begun"
