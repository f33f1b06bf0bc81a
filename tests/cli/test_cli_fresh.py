"""Resuming what was edited: refused with the reason; ``--fresh`` begins anew and keeps what was there."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from command_line import Weft

import weft as package
from weft.core.errors import RunError
from weft.services.run_folder import lock_folder

SMALL = {"envs": 4, "steps": 64, "quiet": True, "tensorboard": False}


def edit(here: Path, old: str, new: str) -> None:
    text = (here / "mine.py").read_text()
    assert old in text
    (here / "mine.py").write_text(text.replace(old, new))
    sys.modules.pop("mine")


def test_an_edited_environment_is_not_the_run_that_is_there(train: Weft, weft: Weft, here: Path) -> None:
    """The class itself, which only its name told of before: quietly, the old finished run came back."""
    assert train("mine:Walk", "--run", "a", "--quiet").code == 0
    assert train("mine:Walk", "--run", "a", "--quiet").code == 0, "unedited it is finished"
    with (here / "mine.py").open("a") as file:
        file.write("\n\nclass Another: ...\n")
    sys.modules.pop("mine")
    assert train("mine:Walk", "--run", "a", "--quiet").code == 0, "nor by what it does not use"
    text = (here / "mine.py").read_text()
    start = text.index("class Walk")
    at = text.index("    def ", start)
    (here / "mine.py").write_text(f"{text[:at]}    edited = True\n\n{text[at:]}")
    sys.modules.pop("mine")
    ended = train("mine:Walk", "--run", "a", "--quiet")
    assert ended.code == 1
    assert 'code.environment.reached: "sha256:' in ended.err
    assert (
        "Your code has changed since, and the run learned with the old. Go on with the new by --new-code" in ended.err
    )
    assert "begin anew with --fresh (the old run is kept as a.1)" in ended.err
    assert "environment is not what it was trained with, or its code has changed since" in weft("eval", "a").err
    assert train("mine:Walk", "--run", "a", "--quiet", "--new-code", "--steps", "96").code == 0
    assert train("mine:Walk", "--run", "a", "--quiet", "--steps", "96").code == 0, "it is the run's code now"


def test_fresh_keeps_what_was_there(train: Weft, weft: Weft, here: Path) -> None:
    before = train("weft:CartPole-v1", "--run", "a", "--json").json
    ended = train("weft:CartPole-v1", "--run", "a", "--algo.clip", "0.1")
    assert ended.code == 1
    assert "algo.clip: 0.2 → 0.1" in ended.err
    assert "begin anew with --fresh (the old run is kept as a.1)" in ended.err
    ended = train("weft:CartPole-v1", "--run", "a", "--algo.clip", "0.1", "--fresh")
    assert ended.code == 0, ended.err
    assert "the run that was there is kept as runs/a.1" in ended.err
    assert json.loads((here / "runs/a/config.json").read_text())["algo"]["clip"] == 0.1
    assert json.loads((here / "runs/a.1/summary.json").read_text())["params_sha256"] == before["params_sha256"]
    assert weft("eval", "a.1", "--episodes", "1").code == 0
    run = package.train("ppo", "weft:CartPole-v1", run="a", fresh=True, unroll=4, hidden=(8,), **SMALL)
    assert run.summary["exit"] == "finished"
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["a", "a.1", "a.2"]
    assert train("weft:CartPole-v1", "--run", "new", "--fresh").code == 0, "there was none"
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["a", "a.1", "a.2", "new"]


def test_fresh_takes_no_run_from_another_process(train: Weft, here: Path) -> None:
    assert train("weft:CartPole-v1", "--run", "a", "--quiet").code == 0
    held = lock_folder(here / "runs" / "a")
    try:
        ended = train("weft:CartPole-v1", "--run", "a", "--fresh", "--quiet")
    finally:
        os.close(held)
    assert ended.code == 1
    assert "is in use by another process" in ended.err
    assert [p.name for p in (here / "runs").iterdir()] == ["a"]


def make_cartpole(limit: int, wrap: type | None = None) -> gym.Env:
    return gym.make("CartPole-v1", max_episode_steps=limit)


def test_a_partial_is_its_function_and_its_arguments(here: Path) -> None:
    """Its repr has an address, and was its name: no other process ever found the run again."""
    ppo = package.PPO(unroll=4, hidden=(8,))
    first = package.train(ppo, functools.partial(make_cartpole, 10, wrap=gym.Wrapper), **SMALL)
    name = f"{__name__}:make_cartpole(10, wrap=gymnasium.core:Wrapper)"
    assert first.summary["environment"] == name
    again = package.train(ppo, functools.partial(make_cartpole, 10, wrap=gym.Wrapper), **(SMALL | {"steps": 96}))
    assert again.folder == first.folder
    assert again.summary["env_steps"] == 96
    assert package.evaluate(again.folder, episodes=1).length_mean <= 10
    other = functools.partial(make_cartpole, 20, wrap=gym.Wrapper)
    with pytest.raises(RunError, match=r"environment: .*make_cartpole\(10.* → .*make_cartpole\(20"):
        package.train(ppo, other, run=first.folder.name, **SMALL)


def test_an_edited_algorithm_is_seen(weft: Weft, here: Path) -> None:
    (here / "mine.py").write_text("import weft\nclass Own(weft.PPO):\n    def extra(self):\n        return 1\n")
    command = ("train", "mine:Own", "weft:CartPole-v1", "--envs", "4", "--algo.unroll", "4", "--algo.hidden", "8")
    rest = ("--steps", "64", "--no-tensorboard", "--run", "a", "--quiet")
    assert weft(*command, *rest).code == 0
    edit(here, "return 1", "return 2")
    ended = weft(*command, *rest)
    assert ended.code == 1
    assert "Your code has changed since" in ended.err


def test_a_run_of_an_earlier_version_goes_on(train: Weft, here: Path) -> None:
    """Its config has no hash of what is reached: that alone is no difference."""
    assert train("mine:Walk", "--run", "a", "--quiet").code == 0
    path = here / "runs/a/config.json"
    config = json.loads(path.read_text())
    assert config["code"]["environment"].pop("reached")
    path.write_text(json.dumps(config))
    assert train("mine:Walk", "--run", "a", "--quiet", "--steps", "96").code == 0
    assert json.loads(path.read_text())["code"]["environment"]["reached"]
