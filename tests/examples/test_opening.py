"""What was trained from a script, a notebook or with an object opens again, by ``weft eval`` and by ``weft.load``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(p.stem for p in (Path(__file__).parents[2] / "examples").glob("*.py"))

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


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_run_that_an_example_leaves_opens_again(name: str, here: Path, tmp_path: Path) -> None:
    """Trained as a script, then opened by other processes: from Python, and by the command."""
    trained = python("-c", AS_SCRIPT, f"examples/{name}.py", "4096", cwd=here)
    assert trained.returncode == 0, trained.stderr
    folders = sorted(p.parent for p in (here / "runs").glob("*/config.json"))
    assert folders, trained.stdout
    for folder in folders:
        code = f"import weft; run = weft.load({folder.name!r}); print(run.source.spec.name, sorted(run.summary)[:1])"
        loaded = python("-c", code, cwd=here)
        assert loaded.returncode == 0, loaded.stderr
        ended = python("-m", "weft", "eval", folder.name, "--episodes", "1", "--json", cwd=here)
        assert ended.returncode == 0, ended.stderr
        result = json.loads(ended.stdout)
        assert result["episodes"] == 1
        if name == "two_teams":
            assert [row["policy"] for row in result["policies"]] == ["red", "blue"]
            red, blue = (row["return_mean"] for row in result["policies"])
            assert red == -blue, "what one wins the other loses"
        assert "warning" not in ended.stderr


SCRIPT = """
import functools
import gymnasium as gym
import weft


class Short(gym.Wrapper):
    '''Of a class of the script's own.'''


def make(limit=20):
    return Short(gym.make("CartPole-v1", max_episode_steps=limit))


class Mine(weft.PPO):
    '''An algorithm of the script's own.'''


ENVIRONMENTS = {"function": make, "partial": functools.partial(make, limit=10), "lambda": lambda: make()}
SMALL = dict(unroll=4, hidden=(8,))
"""

TRAINS = """
import sys
for name in sys.argv[1:]:
    run = weft.train(Mine(**SMALL), ENVIRONMENTS[name], envs=4, steps=64, run=name, quiet=True, tensorboard=False)
"""


@pytest.fixture
def script(here: Path) -> Path:
    """A script that trains at its top level: nothing of it stands under ``__main__``."""
    (here / "script.py").write_text(SCRIPT + TRAINS)
    return here / "script.py"


def test_a_script_that_trains_at_its_top_level_opens_again(script: Path, here: Path) -> None:
    """And does not train again; what has no name is asked for, and the policy opens without it."""
    trained = python("script.py", "function", "partial", "lambda", cwd=here)
    assert trained.returncode == 0, trained.stderr
    before = {p: p.stat().st_mtime_ns for p in (here / "runs").rglob("*")}
    code = """if True:
        import pytest, weft
        from weft.core.errors import RunError
        assert weft.evaluate("function", episodes=2).length_mean <= 20
        run = weft.load("partial")
        assert weft.evaluate(run, episodes=2).length_mean <= 10
        assert type(run.algorithm).__name__ == "Mine"
        with pytest.raises(RunError, match=r"'__main__:<lambda>' was an object or a function that a folder"):
            weft.load("lambda")
        assert weft.load("lambda", policy_only=True).policy([0.0, 0.0, 0.0, 0.0]) in (0, 1)
        given = weft.load("lambda", environment="CartPole-v1", algorithm=weft.PPO)
        assert weft.evaluate(given, episodes=2).episodes == 2
    """
    opened = python("-W", "ignore", "-c", code, cwd=here)
    assert opened.returncode == 0, opened.stderr
    assert {p: p.stat().st_mtime_ns for p in (here / "runs").rglob("*")} == before
    script.unlink()
    ended = python("-m", "weft", "eval", "function", cwd=here)
    assert ended.returncode == 1
    assert f"the script '{script}' is not there any more. Give it again in Python" in ended.stderr


@pytest.mark.slow
def test_what_a_notebook_defined_opens_where_it_is_defined_again(here: Path) -> None:
    """``python -c`` stands for it: ``__main__`` without a file."""
    train = "weft.train(Mine(**SMALL), make, envs=4, steps=64, run='a', quiet=True, tensorboard=False)\n"
    again = "assert weft.load('a').source.name == '__main__:make'\nassert type(weft.load('a').algorithm) is Mine\n"
    ended = python("-c", SCRIPT + train + again, cwd=here)
    assert ended.returncode == 0, ended.stderr
    ended = python("-m", "weft", "eval", "a", cwd=here)
    assert ended.returncode == 1
    assert "'__main__:Mine' is not there in this process. Give it again in Python" in ended.stderr or (
        "'__main__:make' is not there in this process. Give it again in Python" in ended.stderr
    )
