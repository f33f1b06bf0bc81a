"""A folder of the user's with a copy of the examples in it, as somebody outside of this repository would have."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, as working directory; what was imported from it is forgotten again."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *[p for p in sys.path if Path(p or ".") != REPOSITORY]])
    environment, on_interrupt = dict(os.environ), signal.getsignal(signal.SIGINT)
    _forget(tmp_path)
    yield tmp_path
    _forget(tmp_path)
    os.environ.clear()
    os.environ.update(environment)
    assert signal.getsignal(signal.SIGINT) is on_interrupt


def _forget(folder: Path) -> None:
    """Modules of this folder, and any other that is called ``examples``: the next import must look again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] == "examples" or (file and Path(file).is_relative_to(folder)):
            del sys.modules[name]
    importlib.invalidate_caches()
