"""``weft init``, ``weft doctor`` and ``weft completion``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Weft

import weft as library
from weft.cli import doctor
from weft.cli.completion import script
from weft.cli.main import COMMANDS
from weft.nets.native import library as kernels

ROOT = Path(library.__file__).parents[1]


def test_a_new_project_trains_at_once_and_its_test_passes(weft: Weft, tmp_path: Path) -> None:
    ended = weft("init", "my-walk")
    assert ended.code == 0
    assert ended.out.endswith("weft train ppo my_walk.environment:Corridor --steps 20_000\n")
    made = Path("my-walk").resolve()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    here = {"cwd": made, "env": environment, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], **here)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
    command = [
        "train",
        "my_walk.network:Mine",
        "my_walk.environment:Corridor",
        "--envs",
        "4",
        "--steps",
        "512",
        "--json",
    ]
    ran = subprocess.run([sys.executable, "-m", "weft", *command], **here)
    assert '"exit":"finished"' in ran.stdout, ran.stderr
    assert weft("init", "my-walk").err == "weft: error: my-walk is there and not empty: choose another folder\n"


def test_doctor(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = weft("doctor")
    assert ended.code == 0
    assert ended.out.endswith("All that `weft train` needs is here.\n")
    assert " × cpu (cpu)" in ended.out
    assert "compiled for this CPU, for images, SAC, TD3 and IQL, in " in " ".join(ended.out.split())
    monkeypatch.setattr(doctor, "NEEDED", ("jax", "no-such-package"))
    monkeypatch.setattr(doctor, "SHARED", 1 << 60)
    monkeypatch.setattr(kernels, "trouble", lambda: "no C++ compiler")
    ended = weft("doctor", "--json")
    found = {(one["level"], one["what"]): one["do"] for one in ended.json}
    assert ended.code == 1
    assert found["bad", "packages"] == "pip install no-such-package"
    assert "three times the time" in found["note", "kernels"]
    assert "IQL" in found["note", "kernels"]
    assert found["note", "shared memory"] == "docker run --shm-size 2g; or --channel ipc"


def completed(*typed: str) -> list[str]:
    words = " ".join(f'"{word}"' for word in ("weft", *typed))
    code = f'{script("bash")}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; _weft; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes(weft: Weft) -> None:
    Path("runs/first").mkdir(parents=True)
    assert completed("ev") == ["eval"]
    assert set(completed("")) == set(COMMANDS)
    assert "--stop-at" in completed("train", "ppo", "--st")
    assert "--algo.learning-rate" in completed("train", "ppo", "--algo.lea")
    assert completed("train", "pp") == ["ppo"]
    assert completed("train", "ppo", "--plan", "inl") == ["inline"]
    assert "first" in completed("eval", "fi")
    assert weft("completion", "tcsh").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_in_every_script(shell: str) -> None:
    text = script(shell)
    assert all(name in text for name in COMMANDS)
    assert "--checkpoint" in text or "-l checkpoint" in text
