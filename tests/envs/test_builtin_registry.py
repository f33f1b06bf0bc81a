"""The table of built-in environments: cheap to list, loaded by name, clear about wrong names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.core.errors import ConfigError, UnknownName
from weft.envs.builtin import BUILTIN, load
from weft.envs.builtin.memory import Memory


@pytest.mark.parametrize("name", BUILTIN)
def test_each_name_loads_what_it_says(name: str) -> None:
    env = load(name)
    assert env.spec.name == f"weft:{name}"
    assert env.spec.pure
    assert env == load(name)
    assert hash(env) == hash(load(name))
    assert BUILTIN[name].summary


def test_options_are_the_fields_of_the_class() -> None:
    assert load("Memory-v0", length=20) == Memory(length=20)
    with pytest.raises(UnknownName, match=r"'lenght'.*Did you mean 'length'"):
        load("Memory-v0", lenght=20)
    for wrong in ("abc", -3, 2.5, True):
        with pytest.raises(ConfigError, match=rf"'weft:Memory-v0': length must be a whole number.*got {wrong!r}"):
            load("Memory-v0", length=wrong)


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'weft:CartPole-v1'"):
        load("Cartpole-v1")


def test_listing_does_not_load_jax() -> None:
    code = "import sys; from weft.envs.builtin import BUILTIN; assert BUILTIN; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
