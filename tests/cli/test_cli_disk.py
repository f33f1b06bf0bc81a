"""Folders that cannot be used, disks that fill up, checkpoints that rot: nothing is lost, and what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import SMALL, Weft

from weft.services.run_folder import open_run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("root", ["a-file", "a-file/below", "/proc/weft"])
def test_a_root_that_cannot_be_used(train: Weft, here: Path, root: str) -> None:
    """For the superuser, as whom tests may run, no folder is read-only; /proc is, and so is what is no folder."""
    (here / "a-file").write_text("precious")
    code, out, err = train("mine:Walk", "--root", root)
    assert (code, out) == (1, "")
    assert f"cannot use {root}/ppo-mine-Walk-s0" in err
    assert "choose another folder" in err
    assert "Traceback" not in err
    assert (here / "a-file").read_text() == "precious"


@pytest.mark.parametrize("name", ["a/b", ".hidden", ".."])
def test_names_that_cannot_be_folders(train: Weft, here: Path, name: str) -> None:
    code, _, err = train("mine:Walk", "--run", name)
    assert code == 1
    assert f"{name!r} cannot be a run's name" in err
    assert not (here / "runs").exists()


def test_a_folder_of_something_else_is_not_touched(train: Weft, here: Path) -> None:
    (here / "runs/thesis").mkdir(parents=True)
    (here / "runs/thesis/chapter.tex").write_text("precious")
    code, _, err = train("mine:Walk", "--run", "thesis")
    assert code == 1
    assert "chapter.tex" in err
    assert contents(here / "runs/thesis")["chapter.tex"] == b"precious"


def test_a_run_has_one_process_at_a_time(train: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "a")
    config = json.loads((here / "runs/a/config.json").read_text())
    with open_run(here / "runs", "a", config, {}):
        code, out, err = train("mine:Walk", "--run", "a")
    assert (code, out) == (1, "")
    assert "in use by another process" in err
    assert train("mine:Walk", "--run", "a").code == 0


def test_a_damaged_checkpoint_is_passed_over_and_said(train: Weft, weft: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "a", "--steps", "32")
    straight = train("mine:Walk", "--run", "a", "--json").json
    damage(here / "runs/a/checkpoints/000000000004.weft")
    evaluated = weft("eval", "a", "--episodes", "2")
    assert evaluated.code == 0
    assert "000000000004.weft" in evaluated.err
    again = train("mine:Walk", "--run", "a", "--json")
    assert "warning: " in again.err
    assert "Trying the one before it: 000000000002.weft" in again.err
    assert again.json["params_sha256"] == straight["params_sha256"]
    assert train("mine:Walk", "--run", "a", "--json").err == ""


def test_where_every_checkpoint_is_damaged_nothing_is_overwritten(train: Weft, weft: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "a", "--steps", "32")
    train("mine:Walk", "--run", "a")
    for path in (here / "runs/a/checkpoints").iterdir():
        damage(path)
    before = contents(here / "runs/a")
    for command in (("train", "ppo", "mine:Walk"), ("eval",)):
        more = (*SMALL, "--run", "a", "--steps", "96", "--quiet")
        code, out, err = weft(*command, *more) if command[0] == "train" else weft("eval", "a")
        assert (code, out) == (1, "")
        assert "none of the 2 checkpoints" in err
        assert "another --run" in err
        assert "Traceback" not in err
    assert {"config.json", "plan.json", "summary.json"} <= set(before)
    assert contents(here / "runs/a") == before


def test_a_full_disk_does_not_stop_training_and_saving_recovers(
    train: Weft, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.runtimes.loop.execution.DISPATCH_SECONDS", 0.0)  # one learn call at a time
    code, out, err = train("mine:FillsTheDisk", "--run", "a", "--steps", "96", "--checkpoint-seconds", "0", "--quiet")
    assert (code, out) == (0, "")
    assert "cannot save checkpoint runs/a/checkpoints/000000000002.weft: File too large" in err
    assert "000000000003.weft: File too large" in err
    assert "Training goes on" in err
    assert "saving works again: 64 env steps are safe" in err
    assert (here / "runs/a/checkpoints/000000000006.weft").exists()
    assert json.loads((here / "runs/a/summary.json").read_text())["exit"] == "finished"


def test_a_disk_that_stays_full_fails_the_run_at_its_end(
    train: Weft, weft: Weft, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.runtimes.loop.execution.DISPATCH_SECONDS", 0.0)
    ended = train("mine:FillsTheDiskForGood", "--run", "a", "--checkpoint-seconds", "0", "--json")
    code, _, err = ended
    assert code == 1
    assert (ended.json["exit"], ended.json["saved_learn_steps"]) == ("failed", 1)
    assert "cannot save checkpoint" in ended.json["error"]
    assert err.splitlines()[-1].startswith("weft: error: cannot save checkpoint runs/a/checkpoints/000000000004.weft")
    assert "Traceback" not in err
    assert [p.name for p in (here / "runs/a/checkpoints").iterdir()] == ["000000000001.weft"]
