"""What is called to make an environment is one, or makes one, by its type: found out before it is called."""

from __future__ import annotations

import functools
import operator
import os
import re
import shutil
import subprocess
from typing import Any

import gymnasium as gym
import jax
import pytest

import weft
from weft.core.errors import ConfigError
from weft.envs.admission import check_factory
from weft.envs.builtin.catch import Catch
from weft.envs.registry import modules_of, open_environment


class Mine(gym.Env[Any, Any]):
    @classmethod
    def easy(cls) -> Mine:
        return cls()


class OldStyle:
    """As the older gym had them: what it lacks is said when it is made."""

    def reset(self) -> None: ...

    def step(self, action: int) -> None: ...


class Maker:
    def __call__(self) -> gym.Env[Any, Any]:
        return Mine()


def bare():  # type: ignore[no-untyped-def]
    return Mine()


def annotated() -> gym.Env[Any, Any]:
    return Mine()


def anything() -> Any:
    return Mine()


def says_text() -> str:
    raise AssertionError("it was called")


def says_nothing() -> None:
    raise AssertionError("it was called")


def unresolvable() -> NotThere:  # type: ignore[name-defined]  # noqa: F821
    return Mine()


@functools.lru_cache
def kept() -> gym.Env[Any, Any]:
    return Mine()


def in_words(thing: Any) -> str:
    """Without the address, which is another in each of xdist's processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


@pytest.mark.parametrize(
    "factory",
    [
        *(Mine, Mine.easy, OldStyle, Catch, Maker(), bare, annotated, anything, unresolvable, kept, lambda: Mine()),
        functools.partial(bare),
        functools.partial(functools.partial(Mine)),
        functools.partial(gym.make, "CartPole-v1"),
        jax.jit(bare),
    ],
    ids=in_words,
)
def test_environments_and_what_makes_them_are_let_in(factory: Any) -> None:
    check_factory("mine", factory)


@pytest.mark.parametrize(
    "thing",
    [
        *(os.system, os.popen, subprocess.run, subprocess.Popen, shutil.rmtree, eval, exec, print, len, dict, object),
        *(operator.methodcaller("close"), weft.train, weft.PPO, says_text, says_nothing, 3, None, os),
        functools.partial(os.system, "true"),
        functools.partial(functools.partial(subprocess.run), ["true"]),
    ],
    ids=in_words,
)
def test_what_is_neither_is_refused_before_it_is_called(thing: Any) -> None:
    with pytest.raises(ConfigError, match=r"environment 'mine': .* Expected a gymnasium\.Env class"):
        check_factory("mine", thing)


@pytest.mark.parametrize("name", ["os:system", "posix:system", "subprocess:run", "builtins:exec", "shutil:rmtree"])
def test_python_s_own_library_has_no_environments(name: str, tmp_path: Any) -> None:
    marker = tmp_path / "ran"
    option = {"command": f"touch {marker}"} if "system" in name else {}
    with pytest.raises(ConfigError, match=r"is a module of Python's own library, which has no environments"):
        open_environment(name, **option)
    assert not marker.exists()


def test_what_a_module_imported_is_not_its_own(tmp_path: Any) -> None:
    """By way of a module of the user's it is the same function."""
    for name in (f"{__name__}:os.system", f"{__name__}:subprocess.run", f"{__name__}:shutil.rmtree"):
        with pytest.raises(ConfigError, match=r"written in C|of Python's own library"):
            open_environment(name)


def test_which_names_import_a_module() -> None:
    for built_in in ("CartPole-v1", "weft:Catch", "gymnax:CartPole-v1", "ALE/Pong-v5", "no such id", "brax:ant"):
        assert modules_of(built_in) == []
    assert modules_of("os:system") == ["os"]
    assert modules_of("package.module:Id-v0") == ["package.module"]
    gym.register("WeftPlugin-v0", entry_point="plugin.package:Env")
    try:
        assert modules_of("WeftPlugin-v0") == ["plugin.package"]
    finally:
        del gym.registry["WeftPlugin-v0"]
