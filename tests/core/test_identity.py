"""Identities: equal for the same code in every process, different for other code, and never a memory address."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import weft
from weft.core.identity import identity


def init(key: Any) -> Any:
    return key


def apply(params: Any, observation: Any) -> Any:
    return params, observation


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Record:
    size: int
    inner: Any = None


class Opaque:
    """Its repr has its address."""

    def method(self) -> None: ...


class Plainly:
    def __repr__(self) -> str:
        return "Plainly(3)"


class Raising:
    def __repr__(self) -> str:
        raise ValueError("mine")


class Towers(nn.Module):
    choices: int

    @nn.compact
    def __call__(self, observation: Any) -> Any:
        return nn.Dense(self.choices)(observation)


def scaled(by: Any) -> Callable[[Any], Any]:
    def scale(x: Any) -> Any:
        return x * by

    return scale


def recursive() -> Callable[[int], int]:
    def down(n: int) -> int:
        return down(n - 1) if n else 0

    return down


def counting() -> Callable[[], int]:
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return count

    return more


THINGS: dict[str, Callable[[], Any]] = {
    "function": lambda: init,
    "pair": lambda: (init, apply),
    "lambda": lambda: lambda: 1,
    "builtin": lambda: len,
    "class": lambda: Opaque,
    "jitted": lambda: jax.jit(apply),
    "partial": lambda: functools.partial(apply, 3, observation=(1, 2)),
    "network": lambda: weft.Network(init, apply, carry=jnp.zeros(8)),
    "record": lambda: Record(3, {"f": init, "g": [Pair(1, apply)]}),
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "key": lambda: jax.random.key(3),
    "set": lambda: {"a", "b", "c", "d", "e"},
    "opaque": Opaque,
    "method": lambda: Opaque().method,
    "plainly": Plainly,
    "raising": Raising,
    "flax": lambda: Towers(choices=2),
    "flax's method": lambda: Towers(choices=2).apply,
    "closure": lambda: scaled(0.5),
    "closure of a function": lambda: scaled(jnp.tanh),
    "recursive": recursive,
    "long": lambda: Record(1, "x" * 1000),
}


def all_of_them() -> dict[str, Any]:
    return {name: identity(make()) for name, make in THINGS.items()}


def test_they_are_the_same_in_every_process_and_have_no_address() -> None:
    code = "import json, test_identity; print(json.dumps(test_identity.all_of_them()))"
    here = Path(__file__)
    path = os.pathsep.join([str(here.parent), str(here.parents[2]), *sys.path])
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
        made = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        texts.append(made.stdout)
    assert texts[0] == texts[1]
    assert json.loads(texts[0]).keys() == THINGS.keys()
    assert "0x" not in texts[0]


@pytest.mark.parametrize("name", THINGS)
def test_they_are_dicts(name: str) -> None:
    """So that they cannot be taken for a plain value."""
    assert isinstance(identity(THINGS[name]()), dict)


def test_what_they_say() -> None:
    source = identity(init)["source"]
    assert identity(init) == {"function": f"{__name__}:init", "source": source, "reached": identity(init)["reached"]}
    assert source.startswith("sha256:")
    assert identity((init, apply)) == {"0": identity(init), "1": identity(apply)}
    assert identity(weft.Network(init, apply))["apply"] == identity(apply)
    reached = identity(Opaque)["reached"]
    assert identity(Opaque) == {"class": f"{__name__}:Opaque", "reached": reached}
    assert identity(Opaque()) == {"type": f"{__name__}:Opaque", "reached": reached}
    assert identity(Plainly())["repr"] == "Plainly(3)"
    assert identity(jax.jit(apply)) == identity(apply)
    assert identity(len) == {"function": "builtins:len"}
    assert identity(optax.global_norm).keys() == {"function"}  # a library's: another version of it is no other network


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: 1, lambda: 2),
        ((init, apply), (init, init)),
        (scaled(0.5), scaled(0.6)),
        (scaled(jnp.tanh), scaled(jnp.sin)),
        (scaled((init, 1)), scaled((apply, 1))),
        (functools.partial(apply, 3), functools.partial(apply, 4)),
        (Record(3), Record(4)),
        (np.zeros(3), np.ones(3)),
        (Towers(choices=2), Towers(choices=3)),
        (Towers(choices=2).apply, Towers(choices=3).apply),
        (Record(1, "x" * 1000), Record(1, "x" * 1001)),
        (lambda size=1: size, lambda size=2: size),
    ],
)
def test_what_differs_is_told_apart(one: Any, other: Any) -> None:
    assert identity(one) != identity(other)


def test_what_a_function_counts_is_not_part_of_it() -> None:
    more = counting()
    before = identity(more)
    more()
    assert identity(more) == before


def loaded(path: Path, text: str) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_of_a_lambda_only_its_own_text_counts(tmp_path: Path) -> None:
    before = loaded(tmp_path / "a.py", "made = dict(a=lambda: [1], b=lambda: [2], steps=1000)\n").made
    after = loaded(tmp_path / "b.py", "# ä\n\nmade = dict(ü=3, a=lambda: [1], b=lambda: [3], steps=2000)\n").made
    assert identity(before["a"]) == identity(after["a"])
    assert identity(before["b"]) != identity(after["b"])
    assert identity(before["a"]) != identity(before["b"])


def test_without_a_source_the_name_is_left() -> None:
    space: dict[str, Any] = {"__name__": "typed"}
    exec("f = lambda: 1\ndef g(): ...", space)
    assert identity(space["f"]) == {"function": "typed:<lambda>"}
    assert identity(space["g"]) == {"function": "typed:g"}
