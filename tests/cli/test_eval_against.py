"""``weft eval RUN --against OPPONENT``: another run, a tag, random play, a rule; and who cannot meet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli.main import main

QUIET: dict[str, Any] = {"quiet": True, "tensorboard": False}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-play in Rally, teams in Tag, and who has nobody to play; for slow tests a second of both, and a crowd."""
    root = tmp_path_factory.mktemp("runs")
    ppo = weft.PPO(unroll=16, hidden=(8,), epochs=1, minibatches=1)
    more = "WEFT_SLOW" in os.environ
    for run, seed in (("rally", 1), ("other", 2))[: 2 if more else 1]:
        learns = weft.SelfPlay(of=ppo, versions=2, every=1)
        weft.train(learns, "weft:Rally-v0", envs=8, steps=512, seed=seed, run=run, root=root, **QUIET)
    weft.tag("rally", "mine", root=root)
    for run, options in (("tag", {}), ("again", {}), ("crowd", {"adversaries": 4}))[: 3 if more else 1]:
        chase = weft.Policies({"adversary*": ppo, "agent*": ppo})
        weft.train(chase, "weft:Tag-v0", envs=8, steps=256, run=run, root=root, env_options=options, **QUIET)
    weft.train(ppo, "weft:Spread-v0", envs=8, steps=256, run="spread", root=root, **QUIET)
    return root


def test_self_play_is_evaluated_and_exported_as_its_only_team(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One policy plays both sides: what one gains the other loses, and the mean of the two is counted."""
    capsys.readouterr()
    where = ["--root", str(root)]
    assert main(["eval", "rally", *where, "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == [0.0] * 3
    assert main(["export", "rally", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"]["played"] > 0


def played(root: Path, capsys: pytest.CaptureFixture[str], run: str, against: str, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    where = ["--root", str(root), "--episodes", "6", "--json"]
    assert main(["eval", run, "--against", against, *where, *more]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def slow(against: str) -> Any:
    return pytest.param(against, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "against",
    ["rally@mine", "weft.envs.builtin.rally:follow", slow("random"), slow("other"), slow("other@latest")],
)
def test_two_sides_play_and_one_wins(root: Path, capsys: pytest.CaptureFixture[str], against: str) -> None:
    told = played(root, capsys, "rally", against)
    assert told["games"] == 6
    assert 0.0 <= told["won"] <= 1.0
    if against.endswith("follow"):
        assert told["won"] < 0.5, "32 learn steps of a small network do not beat the yardstick"


@pytest.mark.parametrize("against", ["tag@latest", slow("random"), slow("again"), slow("again@latest")])
def test_a_team_plays_against_the_others_of_an_opponent(
    root: Path, capsys: pytest.CaptureFixture[str], against: str
) -> None:
    told = played(root, capsys, "tag", against, "--policy", "agent")
    assert told["policy"] == "agent"
    assert told["episodes"] == 6
    assert len(told["returns"]) == 6


@pytest.mark.slow
def test_it_says_so_in_words(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["eval", "rally", "--against", "random", "--root", str(root), "--episodes", "4"])
    assert "rally, against random: won " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "against", "words"),
    [
        ("spread", "random", "nobody is left to play against it"),
        ("tag", "rally", "has no policy for team 'agent'"),
        pytest.param("tag", "crowd", "both must have been trained in the same environment", marks=pytest.mark.slow),
        ("rally", "tag", "has no one policy for all agents"),
        ("rally", "rally@best-of-all", "no checkpoint 'best-of-all'"),
        ("rally", "nobody", "nobody"),
        ("rally", "weft.envs.builtin.rally:lead", "has no function 'lead'"),
    ],
)
def test_who_cannot_meet(root: Path, capsys: pytest.CaptureFixture[str], run: str, against: str, words: str) -> None:
    capsys.readouterr()
    try:
        code = main(["eval", run, "--against", against, "--root", str(root), "--episodes", "2"])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code
    assert words in capsys.readouterr().err
