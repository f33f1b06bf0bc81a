"""Checkpoints that are missing, another run's, or renamed: never a start from scratch, never another's weights."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Weft


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def half(train: Weft, here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``half("a")``: a run as it was after two of its four learn steps; gives its folder of checkpoints."""
    monkeypatch.setattr("weft.runtimes.loop.execution.DISPATCH_SECONDS", 0.0)  # one learn call at a time

    def make(name: str) -> Path:
        train("mine:Walk", "--run", name, "--checkpoint-seconds", "0", "--keep-checkpoints", "9")
        folder = here / "runs" / name / "checkpoints"
        for step in (1, 3, 4):
            (folder / f"{step:012d}.weft").unlink()
        return folder

    return make


def test_a_run_whose_checkpoints_are_gone_is_refused_and_stays_as_it_is(train: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "a", "--checkpoint-seconds", "0")
    shutil.rmtree(here / "runs/a/checkpoints")
    before = contents(here / "runs/a")
    for steps in ("64", "96"):  # a finished run, and one that is asked for more
        code, out, err = train("mine:Walk", "--run", "a", "--steps", steps)
        assert (code, out) == (1, "")
        assert "run runs/a has made 64 env steps (summary.json tells), and there is no checkpoint" in err
        assert "Put the checkpoints back" in err
        assert contents(here / "runs/a") == before
    (here / "runs/a/summary.json").unlink()  # as after a kill -9
    assert "64 env steps (metrics.jsonl tells)" in train("mine:Walk", "--run", "a").err
    assert (here / "runs/a/metrics.jsonl").read_bytes() == before["metrics.jsonl"]


def test_a_run_that_was_ended_before_its_first_checkpoint_begins_again_and_says_so(train: Weft, here: Path) -> None:
    assert train("mine:InterruptsTwice", "--run", "a").code == 130
    assert (here / "runs/a/metrics.jsonl").read_text().count("\n") == 1
    code, _, err = train("mine:InterruptsTwice", "--run", "a", "--quiet")
    assert code == 0
    assert "was ended before its first checkpoint: the 16 env steps that it had made are lost" in err


def test_a_checkpoint_of_another_run_is_passed_over_and_said(
    train: Weft, weft: Weft, here: Path, half: Callable[..., Path]
) -> None:
    other = train("mine:Walk", "--run", "b", "--seed", "1", "--json").json
    shutil.copy(here / "runs/b/checkpoints/000000000004.weft", half("a"))
    ids = {name: json.loads((here / f"runs/{name}/config.json").read_text())["id"] for name in "ab"}
    assert ids["a"] != ids["b"]
    assert ids["b"] == other["id"]
    evaluated = weft("eval", "a", "--episodes", "2")
    assert evaluated.code == 0
    assert f"000000000004.weft is of run {ids['b']}, not of this run ({ids['a']})" in evaluated.err
    ended = train("mine:Walk", "--run", "a", "--json")
    assert "Trying the one before it: 000000000002.weft" in ended.err
    assert ended.json["params_sha256"] == train("mine:Walk", "--run", "c", "--json").json["params_sha256"]
    assert ended.json["params_sha256"] != other["params_sha256"]


def test_a_renamed_checkpoint_is_not_the_newest_by_its_name(train: Weft, half: Callable[..., Path]) -> None:
    straight = train("mine:Walk", "--run", "b", "--json").json
    checkpoints = half("a")
    shutil.copy(checkpoints / "000000000002.weft", checkpoints / "000000009999.weft")
    ended = train("mine:Walk", "--run", "a", "--json")
    assert "000000009999.weft was renamed: it holds learn step 2, and its name was 000000000002.weft" in ended.err
    assert ended.json["params_sha256"] == straight["params_sha256"]
    assert (checkpoints / "000000009999.weft").exists()  # not ours to remove


def test_where_all_checkpoints_are_another_runs_nothing_is_overwritten(train: Weft, weft: Weft, here: Path) -> None:
    train("mine:Walk", "--run", "b", "--seed", "1")
    train("mine:Walk", "--run", "a", "--steps", "32")
    shutil.rmtree(here / "runs/a/checkpoints")
    shutil.copytree(here / "runs/b/checkpoints", here / "runs/a/checkpoints")
    before = contents(here / "runs/a")
    for ended in (train("mine:Walk", "--run", "a"), weft("eval", "a")):
        assert ended.code == 1
        assert "none of the 1 checkpoints" in ended.err
        assert "not of this run" in ended.err
    assert contents(here / "runs/a") == before


def test_a_run_from_before_there_were_ids_goes_on(train: Weft, here: Path, half: Callable[..., Path]) -> None:
    straight = train("mine:Walk", "--run", "b", "--json").json
    (path,) = half("a").iterdir()
    config = json.loads((here / "runs/a/config.json").read_text())
    del config["id"]
    (here / "runs/a/config.json").write_text(json.dumps(config))
    raw = path.read_bytes()
    length = int.from_bytes(raw[12:20], "little")
    header = json.loads(raw[20 : 20 + length])
    assert header.pop("label")["run"]
    encoded = json.dumps(header).encode()
    body = raw[:12] + len(encoded).to_bytes(8, "little") + encoded
    body += bytes(-len(body) % 64) + raw[-(-(20 + length) // 64) * 64 : -32]
    path.write_bytes(body + hashlib.sha256(body).digest())
    ended = train("mine:Walk", "--run", "a", "--json")
    assert (ended.err, ended.json["params_sha256"]) == ("", straight["params_sha256"])
    assert ended.json["id"] == ""
