"""PPO with its tuned settings learns each environment to a threshold, in seconds. Longer figures are in the docs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import weft


def learn(tmp_path, environment, steps, **options):
    run = weft.train("ppo", environment, steps=steps, seed=1, root=tmp_path, quiet=True, tensorboard=False, **options)
    assert run.summary["exit"] == "finished"
    return run


THRESHOLDS = {  # environment: steps, the return to reach (random play, the best possible)
    "weft:Acrobot-v1": (150_000, -100),  # -499
    "weft:Pendulum-v1": (150_000, -300),  # -1230; about -150 is as good as it gets
    "weft:Catch-v0": (60_000, 0.95),  # -0.6, 1
    "weft:Memory-v0": (60_000, 0.95),  # 0, 1
    "CartPole-v1": (150_000, 475),
    "Pendulum-v1": (200_000, -300),
}


SLOW = {"Pendulum-v1", "weft:Acrobot-v1"}  # weft:Pendulum-v1 is checked step by step against it


@pytest.mark.parametrize(
    "environment", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in THRESHOLDS]
)
def test_learns(environment, tmp_path):
    steps, threshold = THRESHOLDS[environment]
    assert learn(tmp_path, environment, steps).summary["return_mean"] >= threshold


@pytest.mark.slow
def test_the_command_learns_from_pixels(tmp_path):
    """As a user types it; a CNN's programs take twice as long with the suite's flags, which are for quick compiling."""
    command = ["train", "ppo", "weft:Orchard-v0", "--steps", "36000", "--seed", "1", "--json", "--no-tensorboard"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", *command],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["return_mean"] >= 6  # of about 12; random play gives 0


def test_without_memory_the_memory_task_cannot_be_learned(tmp_path):
    """What it sees when it must answer says nothing of the cue: whatever it does, the expected return is 0."""
    assert abs(learn(tmp_path, "weft:Memory-v0", 60_000, recurrent="").summary["return_mean"]) < 0.35


@pytest.mark.slow
def test_long_short_term_memory_learns_it_too(tmp_path):
    assert learn(tmp_path, "weft:Memory-v0", 150_000, recurrent="lstm").summary["return_mean"] >= 0.95


@pytest.mark.slow
def test_several_seeds_learn_side_by_side(tmp_path):
    run = learn(tmp_path, "weft:CartPole-v1", 150_000, seeds=2)
    assert [row["seed"] for row in run.summary["seeds"]] == [1, 2]
    assert min(row["return_mean"] for row in run.summary["seeds"]) >= 450


def test_what_was_learned_plays_well(tmp_path):
    run = learn(tmp_path, "weft:CartPole-v1", 150_000)
    assert run.summary["return_mean"] >= 475
    assert weft.evaluate(run, episodes=20).return_mean >= 475
