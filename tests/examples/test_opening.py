"""What was trained from a script, a notebook or with an object opens again, by ``weft eval`` and by ``weft.load``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(p.stem for p in (Path(__file__).parents[2] / "examples").glob("*.py"))
QUICK = ("gymnasium_environment",)

AS_SCRIPT = """
import sys, weft
path, steps = sys.argv.pop(1), int(sys.argv.pop(1))
whole = weft.train
weft.train = lambda *given, **named: whole(*given, **named | dict(steps=steps, quiet=True, tensorboard=False))
main = sys.modules["__main__"]
main.__file__ = path
exec(compile(open(path).read(), path, "exec"), main.__dict__)
"""
"""Runs a script as ``python PATH`` does, but for the number of steps that it trains."""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=clean, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EXAMPLES], ids=str
)
def test_every_run_that_an_example_leaves_opens_again(name: str, here: Path, tmp_path: Path) -> None:
    """Trained as a script, then opened by other processes: from Python, and by the command where it has one policy."""
    trained = python("-c", AS_SCRIPT, f"examples/{name}.py", "4096", cwd=here)
    assert trained.returncode == 0, trained.stderr
    folders = sorted(p.parent for p in (here / "runs").glob("*/config.json"))
    assert folders, trained.stdout
    for folder in folders:
        code = f"import weft; run = weft.load({folder.name!r}); print(run.source.spec.name, sorted(run.summary)[:1])"
        loaded = python("-c", code, cwd=here)
        assert loaded.returncode == 0, loaded.stderr
        ended = python("-m", "weft", "eval", folder.name, "--episodes", "1", "--json", cwd=here)
        if name == "two_teams":
            assert "several policies" in ended.stderr
            continue
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["episodes"] == 1
        assert "warning" not in ended.stderr
