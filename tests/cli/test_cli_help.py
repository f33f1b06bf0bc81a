"""What a newcomer types first: every list and every help text, and that they cost no JAX."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import Weft


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_without_a_command_the_commands_are_listed(weft: Weft, arguments: tuple[str, ...]) -> None:
    ended = weft(*arguments)
    assert ended.code == 0
    for name in ("train", "eval", "show", "plans", "algorithms", "envs"):
        assert f"weft {name}" in ended.out


def test_help_of_a_command_also_by_help(weft: Weft) -> None:
    assert weft("help", "eval") == weft("eval", "--help")


def test_version(weft: Weft) -> None:
    from weft import __version__

    assert weft("--version") == (0, f"weft {__version__}\n", "")


def test_a_command_that_is_not_there(weft: Weft) -> None:
    code, out, err = weft("trian", "ppo")
    assert (code, out) == (2, "")
    assert err == "weft: error: unknown command 'trian'. Did you mean 'train'? `weft --help` lists them.\n"


@pytest.mark.parametrize("before", [(), ("ppo",), ("ppo", "CartPole-v1"), ("ppo", "no-such-environment")])
def test_help_of_train_says_what_the_comments_in_the_source_say(weft: Weft, before: tuple[str, ...]) -> None:
    ended = weft("train", *before, "--help")
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert "usage: weft train ALGO ENV" in text
    assert "--checkpoint-seconds FLOAT from one checkpoint to the next" in text
    assert "--algo.trace-decay FLOAT GAE's lambda [0.95]" in text
    assert "--algo.normalise-advantages true|false in each minibatch [true]" in text
    assert "--algo.hidden INT [INT ...]" in text
    assert "--algo.recurrent {none,gru,lstm}" in text
    assert "--algo.network" not in text  # cannot be said on a command line


def test_help_shows_what_is_tuned_for_an_environment(weft: Weft) -> None:
    general = " ".join(weft("train", "ppo", "--help").out.split())
    tuned = " ".join(weft("train", "ppo", "weft:CartPole-v1", "--help").out.split())
    assert "--algo.learning-rate FLOAT [0.00025]" in general
    assert "--algo.learning-rate FLOAT [0.00025]" not in tuned
    assert "tuned for weft:CartPole-v1" in tuned


def test_help_of_an_algorithm_of_ones_own(weft: Weft) -> None:
    text = " ".join(weft("train", "mine:Sized", "--help").out.split())
    assert "fields of Sized:" in text
    assert "--algo.sizes FLOAT [FLOAT ...] what they are [1 2]" in text
    assert "--algo.depth INT|none how deep, 100% of the time [none]" in text
    assert "--algo.trace-decay FLOAT GAE's lambda [0.95]" in text  # PPO's comments, from the base class


@pytest.mark.parametrize("command", ["eval", "show", "plans", "algorithms", "envs"])
def test_every_command_has_a_help_text(weft: Weft, command: str) -> None:
    code, out, err = weft(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: weft {command}")


def test_plans(weft: Weft) -> None:
    code, out, err = weft("plans")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "env+act+learn" in rows["inline"]
    assert not rows["inline"].endswith("not yet")
    assert not rows["srl"].endswith("not yet")
    assert not rows["apex"].endswith("not yet")
    assert rows["auto"].endswith("not yet")


def test_algorithms(weft: Weft) -> None:
    code, out, err = weft("algorithms")
    assert (code, err) == (0, "")
    assert out.startswith("ppo  ")


def test_envs(weft: Weft) -> None:
    code, out, err = weft("envs", "cartpole")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines() if line and not line.startswith("Your own")]
    assert "weft:CartPole-v1" in names
    assert "CartPole-v1" in names
    assert "CartPole-v0" not in names
    assert all("cartpole" in name.lower() for name in names)
    assert "CartPole-v0" in weft("envs", "cartpole", "--all").out
    assert weft("envs", "no such thing").out.startswith("none\n")


def test_show_draws_plans_that_cannot_run_yet_and_says_so(weft: Weft) -> None:
    ended = weft("show", "ppo", "weft:CartPole-v1", "--plan", "env*2 | act | learn", "--algo.unroll", "8")
    assert ended.code == 0
    assert "f32[8,32,4]" in ended.out  # the unroll's observations
    assert "Nearest plan" not in ended.out
    unusual = weft("show", "ppo", "weft:CartPole-v1", "--plan", "env+act+grad | apply", "--algo.unroll", "8")
    assert unusual.code == 0
    assert "Nearest plan that runs now" in unusual.out
    assert weft("show", "ppo", "weft:CartPole-v1", "--mermaid").out.startswith("flowchart")


def test_a_reader_that_leaves_early_is_no_error_of_ours() -> None:
    """``weft envs | head -0``."""
    command = f"{sys.executable} -m weft plans | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
