"""A folder to work in, with a module of the user's, and ``weft`` as a function."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import SMALL, Ended, Weft

from weft.cli.main import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with the user's module ``mine``; what commands change in this process is put back."""
    shutil.copy(Path(__file__).with_name("users_module.py"), tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    environment = dict(os.environ)
    on_interrupt = signal.getsignal(signal.SIGINT)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    for name in ("mine", *[m for m in set(sys.modules) - modules if m.startswith("broken")]):
        sys.modules.pop(name, None)
    os.environ.clear()
    os.environ.update(environment)
    assert signal.getsignal(signal.SIGINT) is on_interrupt


@pytest.fixture
def weft(here: Path, capsys: pytest.CaptureFixture[str]) -> Weft:
    """``weft("train", "ppo", ...)`` in this process."""

    def run(*arguments: str) -> Ended:
        code = main(list(arguments))
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def train(weft: Weft) -> Weft:
    """``train("CartPole-v1", "--run", "a")``: a small PPO."""

    def run(environment: str, *arguments: str) -> Ended:
        return weft("train", "ppo", environment, *SMALL, *arguments)

    return run
