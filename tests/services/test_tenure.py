"""A run's folder that is removed, replaced, or taken by another run while the run lives."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from weft.core.errors import RunError
from weft.services.run_folder import RunFolder, open_run
from weft.services.tenure import Tenure
from weft.telemetry.append import AppendFile

CONFIG = {"algorithm": "ppo", "steps": 3}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    with open_run(tmp_path, "a", CONFIG, {"plan": 1}) as opened:
        yield opened


def test_a_folder_as_it_was_is_left_alone(folder: RunFolder) -> None:
    tenure = Tenure(folder)
    before = {p.name: p.stat().st_mtime_ns for p in folder.path.iterdir()}
    assert tenure.confirm() == ""
    assert {p.name: p.stat().st_mtime_ns for p in folder.path.iterdir()} == before


def test_one_that_was_removed_is_made_again_and_locked(folder: RunFolder) -> None:
    tenure = Tenure(folder)
    config = (folder.path / "config.json").read_bytes()
    shutil.rmtree(folder.path.parent)
    assert not folder.is_held()
    with pytest.raises(RunError, match="removed or replaced"):
        folder.write_summary({})
    assert "had been removed or moved: it was made again" in tenure.confirm()
    assert folder.is_held()
    assert tenure.confirm() == ""
    assert (folder.path / "config.json").read_bytes() == config
    assert json.loads((folder.path / "plan.json").read_text()) == {"plan": 1}
    with pytest.raises(RunError, match="in use by another process"):
        open_run(folder.path.parent, "a", CONFIG, {})
    folder.write_summary({"exit": "finished"})


def test_a_copy_that_takes_its_place_is_gone_on_in(folder: RunFolder) -> None:
    tenure = Tenure(folder)
    shutil.copytree(folder.path, folder.path.parent / "copy")
    shutil.rmtree(folder.path)
    (folder.path.parent / "copy").rename(folder.path)
    assert "replaced by a copy" in tenure.confirm()
    assert folder.is_held()


def test_a_file_that_was_removed_is_written_again(folder: RunFolder) -> None:
    tenure = Tenure(folder)
    (folder.path / "config.json").unlink()
    assert "config.json had been removed" in tenure.confirm()
    assert (folder.path / "config.json").exists()


@pytest.mark.parametrize("in_use", [True, False])
def test_another_runs_folder_is_not_touched(folder: RunFolder, in_use: bool) -> None:
    tenure = Tenure(folder)
    shutil.rmtree(folder.path)
    other = open_run(folder.path.parent, "a", CONFIG, {"plan": 2})
    if not in_use:
        other.close()
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in other.path.glob("*.json")}
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunError, match="in use by another process" if in_use else "another run's folder now"):
        tenure.confirm()
    for write in (lambda: folder.write_summary({}), lambda: folder.trim_metrics(0)):
        with pytest.raises(RunError, match="removed or replaced"):
            write()
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in other.path.glob("*.json")} == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    other.close()


def test_records_are_not_written_into_nothing_nor_into_anothers_file(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "runs" / "metrics.jsonl")
    file.append(b"1\n")
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(OSError, match="removed or replaced"):
        file.append(b"2\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "metrics.jsonl").write_bytes(b"another's\n")
    with pytest.raises(OSError, match="removed or replaced"):
        file.append(b"3\n")
    file.close()  # as when the run has its folder again
    file.append(b"4\n")
    assert (tmp_path / "runs" / "metrics.jsonl").read_bytes() == b"another's\n4\n"
    file.close()
