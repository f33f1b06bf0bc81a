"""A save that is killed at any system call leaves a run that can be resumed, also when the power goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.services.checkpoints import load, save


def test_sigkill_or_power_loss_at_every_system_call_of_a_save(tmp_path: Path) -> None:
    script = Path(__file__).with_name("kill_during_save.py")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path]), "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bad"] == []
    assert result["calls"] >= 15  # the wrappers did see the save
    assert result["kills"] == 3 * result["calls"]


def test_the_data_are_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_fsync, real_replace, real_write = os.fsync, os.replace, os.write

    def fsync(descriptor: int) -> None:
        calls.append("fsync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        calls.append(f"replace {Path(source).name} {Path(target).name}")
        real_replace(source, target)

    def write(descriptor: int, data: bytes) -> int:
        calls.append("write")
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "write", write)
    folder = tmp_path / "checkpoints"
    save(folder, 1, {"x": np.zeros(3)}, {})
    assert calls[0] == f"fsync {tmp_path.name}"  # the new folder's own name
    first_write = calls.index("write")
    assert set(calls[first_write:-3]) == {"write"}
    assert calls[-3:] == [
        "fsync .000000000001.weft.tmp",
        "replace .000000000001.weft.tmp 000000000001.weft",
        "fsync checkpoints",
    ]


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:7]))
    tree = {"x": np.arange(100)}
    path = save(tmp_path, 1, tree, {})
    assert np.array_equal(load(path, tree)[0]["x"], tree["x"])


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 1, {}, {})
    assert os.listdir(tmp_path) == []
