"""Code of the user's that a function or a class reaches: an edit anywhere in it is seen, and elsewhere it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import weft
from weft.core.identity import identity
from weft.core.reached import code_hash, is_users

HELPER = "def push(x):\n    return x + 1\n"
MODULE = """
import functools
import helper
from helper import push

GRAVITY = 9.8
LIMITS = (1, 2)
counted = 0
UNUSED = 1


def unused():
    return 1


class Base:
    def reset(self):
        return GRAVITY


class Env(Base):
    limit = 3

    @property
    def size(self):
        return inner()

    @functools.cached_property
    def kept(self):
        return 5

    def step(self, action):
        def nested():
            return helper.push(action) + counted
        return nested()


def inner():
    return [LIMITS for _ in range(3)]


def make():
    return Env()


def recursive():
    return recursive() or make()


made = functools.partial(make)
"""

CODE = """
import json, sys
import module
from weft.core.identity import identity
print(json.dumps({name: identity(getattr(module, name)) for name in ("Env", "make", "recursive", "made")}))
"""


def identities(folder: Path, module: str = MODULE, helper: str = HELPER) -> str:
    (folder / "module.py").write_text(module)
    (folder / "helper.py").write_text(helper)
    run = [sys.executable, "-B", "-c", CODE]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout


EDITS = {
    "a constant": ("GRAVITY = 9.8", "GRAVITY = 3.7"),
    "a tuple": ("LIMITS = (1, 2)", "LIMITS = (1, 3)"),
    "a base": ("return GRAVITY", "return -GRAVITY"),
    "an attribute": ("limit = 3", "limit = 4"),
    "a function that a property calls": ("range(3)", "range(4)"),
    "a cached property": ("return 5", "return 6"),
    "a nested function": ("+ counted", "- counted"),
    "the class that a function makes": ("def step(self, action):", "def step(self, action, more=0):"),
}


def test_every_edit_of_what_is_reached_is_seen_and_no_other(tmp_path: Path) -> None:
    whole = identities(tmp_path)
    assert "reached" in whole
    assert identities(tmp_path) == whole, "the same in every process"
    for what, (old, new) in EDITS.items():
        assert old in MODULE
        assert identities(tmp_path, MODULE.replace(old, new)) != whole, what
    assert identities(tmp_path, helper=HELPER.replace("+ 1", "+ 2")) != whole, "another module of the user's"
    elsewhere = MODULE.replace("UNUSED = 1", "UNUSED = 2").replace("counted = 0", "counted = 5")
    assert identities(tmp_path, elsewhere.replace("return 1\n", "return 2\n")) == whole


@pytest.mark.parametrize("thing", [weft.PPO, gym.Env, gym.make, dict, len, subprocess.run])
def test_what_the_user_did_not_bring_is_left_out(thing: object) -> None:
    assert not is_users(thing)
    assert code_hash(thing) is None
    assert "reached" not in identity(thing)
