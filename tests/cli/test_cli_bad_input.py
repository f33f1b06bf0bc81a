"""What is asked and cannot be: one clear error each, an exit code, no traceback but the user's own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from command_line import SMALL, Weft


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("pppo CartPole-v1", "unknown algorithm 'pppo'. Did you mean 'ppo'"),
        ("ppo CartPol-v1", "unknown environment 'CartPol-v1'. Did you mean 'CartPole-v1'"),
        ("ppo weft:CartPol-v1", "unknown environment 'weft:CartPol-v1'. Did you mean 'weft:CartPole-v1'"),
        ("CartPole-v1 ppo", "The environment comes second."),
        ("ppo ./there/walk.py:Walk", "A module is named, not a file: there.walk:Walk"),
        ("ppo nowhere:thing", "unknown kind of environment 'nowhere'"),
        ("ppo mine:Wolk", "Did you mean 'mine:Walk'"),
        ("nowhere:Thing CartPole-v1", "there is no module 'nowhere'"),
        ("mine:Custm CartPole-v1", "unknown algorithm in module mine 'Custm'. Did you mean 'Custom'?"),
        ("mine:NOT_A_CLASS CartPole-v1", "expected a subclass of weft.Algorithm"),
        ("ppo CartPole-v1 --algo.learnin-rate 1", "unknown field of PPO: 'learnin_rate'. Did you mean 'learning_rate'"),
        ("ppo CartPole-v1 --algo.lr 1e-3", "unknown field of PPO: 'lr'. Did you mean 'learning_rate'?"),
        ("ppo CartPole-v1 --algo.gamma 0.9", "unknown field of PPO: 'gamma'. Did you mean 'discount'?"),
        ("ppo CartPole-v1 --num-envs 8", "unknown flag '--num-envs'. Did you mean '--envs'"),
        ("ppo CartPole-v1 --stesp 1", "unknown flag '--stesp'. Did you mean '--steps'"),
        ("ppo CartPole-v1 --plan inlin", "unknown plan 'inlin'. Did you mean 'inline'?"),
        ("ppo CartPole-v1 --plan env+", "plan"),
        ("ppo CartPole-v1 --plan (env+act+learn)@gpu", "'weft:CartPole-v1' is the same in JAX"),
        ("ppo CartPole-v1 --plan env+act+grad|apply", "Nearest plan that runs now: 'env+act | learn'"),
        ("ppo CartPole-v1 --plan central", "which do not come apart"),
        (
            "ppo CartPole-v1 --plan (env+act)*3|learn*2 --envs 6",
            "3 replicas of env and act cannot be shared evenly among 2 learn, each of which learns from whole "
            "replicas. Use a multiple of 2 of them, or fewer learn. "
            "Nearest plan that runs now: '(env+act)*2 | learn*2'.",
        ),
        ("ppo mine:nameless --plan env|act|learn", "inside, which a worker process cannot import"),
        ("ppo CartPole-v1 --plan apex", "this algorithm has no 'replay'"),
        ("ppo CartPole-v1 --plan seed --channel shmem", "--channel: expected one of shm, ipc, tcp, got 'shmem'"),
        ("ppo CartPole-v1 --plan seed --max-lag -1", "max_lag must be at least 0 versions, got -1"),
        ("ppo CartPole-v1 --plan seed --ring 0", "ring must be at least 1 slice, got 0"),
        ("ppo CartPole-v1 --plan seed --hang-seconds 0", "hang_seconds must be above 0, got 0"),
        ("ppo CartPole-v1 --plan seed --seeds 2", "use the plan 'inline'"),
        ("ppo CartPole-v1 --on slurm", "expected local, ray, ray://HOST:PORT, HOST:PORT or processes:N"),
        ("ppo CartPole-v1 --on 127.0.0.1:1", "nothing answers there"),
        ("ppo CartPole-v1 --steps 0", "steps must be at least 1, got 0"),
        ("ppo CartPole-v1 --envs 0", "envs must be at least 1, got 0"),
        ("ppo CartPole-v1 --seeds -1", "seeds must be at least 0, got -1"),
        ("ppo CartPole-v1 --seed -1", "seed must be between 0 and 2147483647, got -1"),
        ("ppo CartPole-v1 --seeds 2 --plan (env+act+learn)*2", "Use one of the two"),
        ("ppo CartPole-v1 --algo.minibatches 7", "7 minibatches, which leaves a remainder"),
        ("ppo CartPole-v1 --algo.unroll 0", "PPO.unroll must be at least 1, got 0"),
        ("ppo CartPole-v1 --algo.discount 1.5", "PPO.discount must be between 0 and 1, got 1.5"),
        (
            "ppo CartPole-v1 --algo.recurrent gru --algo.recurrent-size 0",
            "PPO.recurrent_size must be at least 1, got 0",
        ),
        ("ppo CartPole-v1 --algo.hidden -4", "PPO.hidden must be at least 1 in every layer, got (-4,)"),
        ("ppo CartPole-v1 --algo.hidden 64,0", "PPO.hidden must be at least 1 in every layer, got (64, 0)"),
        ("impala CartPole-v1 --algo.hidden 0", "IMPALA.hidden must be at least 1 in every layer, got (0,)"),
        ("a2c CartPole-v1 --algo.max-gradient-norm 0", "A2C.max_gradient_norm must be above 0, got 0.0"),
        ("ppo CartPole-v1 --algo.target-kl -1", "PPO.target_kl must be above 0 or None, got -1.0"),
        ("ppo CartPole-v1 --algo.learning-rate inf", "PPO.learning_rate must be a finite number, got inf"),
        ("ppo CartPole-v1 --checkpoint-seconds -1", "checkpoint_seconds must be at least 0, got -1"),
        (
            "ppo CartPole-v1 --algo.distribution squashed",
            "'squashed' is for Box actions, but these are Discrete(2): use auto, which is categorical there\n",
        ),
        ("ppo CartPole-v1 --env.foo 3", "foo"),
        ("ppo CartPole-v1 --vector nativ", "--vector: expected one of auto, native, each, got 'nativ'"),
        ("ppo", "weft train needs ENV"),
        ("", "weft train needs ALGO, ENV"),
    ],
)
def test_refused_before_anything_is_made(weft: Weft, here: Path, arguments: str, expected: str) -> None:
    code, out, err = weft("train", *arguments.split(" ") if arguments else [])
    assert (code, out) == (2, "")
    assert err.startswith("weft: error: ")
    assert expected in err
    assert "Traceback" not in err
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("environment", "wrong"),
    [
        ("mine:Walk", "(env+act)*4 | learn*3"),
        ("mine:Walk", "(env+act)*1 | learn*2"),
        ("mine:nameless", "env | act+learn"),
    ],
)
def test_a_command_that_is_put_right_has_the_name_still(train: Weft, here: Path, environment: str, wrong: str) -> None:
    ended = train(environment, "--run", "a", "--plan", wrong)
    assert ended.code == 2
    assert "inline" in ended.err or "Nearest plan" in ended.err
    assert not (here / "runs").exists()
    assert train(environment, "--run", "a", "--quiet").code == 0


def test_streams_larger_than_the_memory(weft: Weft, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this small run: the sizes are tested where they are found."""
    monkeypatch.setattr("weft.plans.machine._memory", lambda: 100 * 1024)
    code, out, err = weft("train", "ppo", "CartPole-v1", "--plan", "env*2 | act | learn", "--envs", "32")
    assert (code, out) == (2, "")
    assert err == (
        "weft: error: the streams of plan 'env*2 | act | learn' need 163 KiB of memory (unroll 84 KiB, params 73 KiB, "
        "timestep 4.2 KiB, action 2.0 KiB), and there are 100 KiB here. Use fewer --envs, a shorter --algo.unroll or a "
        "smaller --max-lag.\n"
    )
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [(("ALE/Pong-v5",), "ale_py", "atari"), (("mine:Walk", "--wandb", "project"), "wandb", "wandb")],
)
def test_what_is_not_installed_says_what_to_install(
    train: Weft, here: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], package: str, extra: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(gym.registry, arguments[0], raising=False)  # which Gymnasium loads by itself
    code, out, err = train(*arguments)
    assert (code, out) == (1, "")
    assert err.endswith(f"which is not installed. Run: pip install 'weft[{extra}]'\n")
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("Leaves", "number 0 raised SystemExit in step at its step 0: no display"),
        ("LeavesLater", "number 2 raised SystemExit in step at its step 6"),
        ("LeavesInReset", "number 0 raised SystemExit in reset at its step 0: 0"),
        ("LeavesWhenMade", "number 0 raised SystemExit in making it: 3"),
        ("LeavesWhenClosed", "number 0 raised SystemExit in close at its step 0"),
    ],
)
def test_an_environment_that_leaves_the_process_has_failed(train: Weft, name: str, where: str) -> None:
    code, out, err = train(f"mine:{name}", "--env-errors", "fail")
    assert (code, out) == (1, "")
    assert err.count("Traceback") == 1
    assert err.splitlines()[-1] == f"weft: error: environment 'mine:{name}': {where}"


def test_that_an_environment_left_is_in_the_summary(train: Weft, here: Path) -> None:
    train("mine:LeavesLater", "--run", "a", "--env-errors", "fail")
    summary = json.loads((here / "runs/a/summary.json").read_text())
    assert summary["exit"] == "failed"
    assert "number 2 raised SystemExit in step at its step 6" in summary["error"]


def test_an_interrupt_within_an_environment_stays_one(train: Weft) -> None:
    code, out, err = train("mine:IsInterrupted")
    assert (code, out) == (130, "")
    assert err == "weft: interrupted, left at once; what was saved before is kept\n"


@pytest.mark.parametrize(
    ("name", "where", "theirs"),
    [
        ("RaisesInStep", "number 2 raised ValueError in step at its step 6: the arm fell off", "in happen"),
        ("RaisesInReset", "number 0 raised ValueError in reset at its step 0: no floor to stand on", "in reset"),
        ("RaisesWhenMade", "number 0 raised ValueError in making it: no licence", "in __init__"),
    ],
)
def test_a_traceback_of_the_environments_own_code_alone(train: Weft, name: str, where: str, theirs: str) -> None:
    code, out, err = train(f"mine:{name}", "--env-errors", "fail")
    assert (code, out) == (1, "")
    assert err.count("Traceback") == 1
    shown = err[err.index("Traceback") :]
    assert theirs in shown
    assert all("mine.py" in line for line in shown.splitlines() if line.startswith("  File "))
    assert shown.splitlines()[-1] == f"weft: error: environment 'mine:{name}': {where}"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("NotANumber", "number 1, step 4: the reward is nan"),
        ("Spread", "reset: observation came as shape [3] float32, but the space says Box[4] float32"),
        ("LiesLater", "number 0, step 6: observation came as shape [3] float32, but the space says Box[4] float32"),
        ("JaxNotANumber", "environment 'mine:JaxNotANumber' gave a reward that is not a finite number"),
    ],
)
def test_environments_that_break_their_contract(train: Weft, here: Path, name: str, what: str) -> None:
    code, out, err = train(f"mine:{name}", "--run", "a")
    assert (code, out) == (1, "")
    assert what in err.splitlines()[-1]
    assert "Traceback" not in err


def test_what_an_environment_broke_is_in_the_summary(train: Weft, here: Path) -> None:
    train("mine:NotANumber", "--run", "a")
    summary = json.loads((here / "runs/a/summary.json").read_text())
    assert summary["exit"] == "failed"
    assert summary["env_steps"] == 16
    assert "the reward is nan" in summary["error"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("ppo", "mine:JaxRaises"), "ValueError: cannot be traced"),
        (("mine:RaisesInLearn", "mine:Walk"), "KeyError: 'my mistake'"),
    ],
)
def test_a_traceback_of_the_users_code_from_within_jax(weft: Weft, arguments: tuple[str, ...], error: str) -> None:
    code, out, err = weft("train", *arguments, *SMALL[:8])
    assert (code, out) == (1, "")
    assert all("mine.py" in line for line in err.splitlines() if line.startswith("  File "))
    kind = error.partition(":")[0]
    assert err.splitlines()[-2:] == [error, f"weft: error: your code raised {kind}, as shown above"]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
    ],
)
@pytest.mark.parametrize("what", ["algorithm", "environment"])
def test_modules_that_raise_when_imported(weft: Weft, here: Path, what: str, content: str, shown: str) -> None:
    (here / "broken.py").write_text(content + "\n")
    names = ("broken:Thing", "CartPole-v1") if what == "algorithm" else ("ppo", "broken:Thing")
    code, out, err = weft("train", *names)
    assert (code, out) == (1, "")
    assert shown in err
    assert "broken.py" in err
    assert "/weft/" not in err
    assert err.splitlines()[-1].startswith("weft: error: ")


def test_out_of_memory_says_what_to_do(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.runtimes.loop import train as local

    def exhausted(*_: object, **__: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")

    monkeypatch.setattr(local, "train", exhausted)
    code, out, err = weft("train", "ppo", "CartPole-v1")
    assert (code, out) == (1, "")
    assert "Try fewer --envs" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("variable", "value"), [("JAX_DEFAULT_MATMUL_PRECISION", "bfloat17"), ("JAX_PLATFORMS", "cpux")]
)
def test_what_jax_refuses_of_the_environment_is_named(variable: str, value: str, tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "weft", "train", "ppo", "weft:CartPole-v1", "--steps", "64"]
    asked += ["--root", str(tmp_path)]
    ended = subprocess.run(asked, env=os.environ | {variable: value}, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "JAX refuses what the environment says: " in ended.stderr
    assert f"{variable}={value}" in ended.stderr


def test_a_bug_of_ours_is_shown_whole(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.cli import lists

    monkeypatch.setattr(lists, "_plans", lambda: [][0])
    monkeypatch.setattr("weft.cli.main.is_theirs", lambda error: False)  # the lambda above is in a test, not in Weft
    code, out, err = weft("plans")
    assert (code, out) == (1, "")
    assert "IndexError" in err
    assert "a bug in Weft" in err
