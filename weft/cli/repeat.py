"""The command line that repeats a run, from its config."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from weft.algorithms import tuned
from weft.algorithms.registry import ALGORITHMS, load_algorithm
from weft.cli.flags import Flags
from weft.core.setting import default_of
from weft.runtimes.prepare.settings import RunConfig

_APART = ("algorithm", "environment", "env_options", "fields")


def repeating_command(config: Mapping[str, Any]) -> tuple[str, str]:
    """The command, and what it cannot say, in words; both empty where the config is not that of a run.

    Every field of the algorithm that a command line can say is there, unless it is as ``weft train`` sets it on its
    own: then the command means the same in a later version too. Imports the algorithm only where it is one of ours.
    """
    algorithm, environment = config.get("algorithm"), config.get("environment")
    if not isinstance(algorithm, str) or not isinstance(environment, str) or "population" in config:
        return "", ""
    words = ["weft", "train", algorithm, environment]
    flags = Flags(RunConfig)
    for name, (declared, _) in flags.fields().items():
        if name in _APART or name not in config or config[name] == default_of(declared):
            continue
        if name == "max_lag" and config.get("lockstep"):
            continue
        words += [flags.flag(name)] + ([] if isinstance(config[name], bool) else [_word(config[name])])
    for name, value in _mapping(config.get("env_options")).items():
        words += [f"--env.{name}", _word(value)]
    own = load_algorithm(algorithm) if algorithm in ALGORITHMS else None
    sayable = Flags(own, prefix="algo.").fields() if own is not None else None
    given = _mapping(_mapping(config.get("code")).get("algo"))
    usual = {f.name: default_of(f) for f in fields(own)} if own is not None else {}
    touched = {name for _, row in tuned.ROWS.get(algorithm, []) for name in row.fields}
    for name, value in _mapping(config.get("algo")).items():
        if name in given or (sayable is not None and name not in sayable):
            continue
        if name in usual and name not in touched and _same(usual[name], value):
            continue
        words += [f"--algo.{name.replace('_', '-')}", *map(_word, value if isinstance(value, list) else [value])]
    objects = [
        *(f"algo.{name}" for name in given),
        *(["environment"] if _mapping(config.get("code")).get("environment") else []),
    ]
    lacks = f"It was given code that no command line can hold: {', '.join(objects)}." if objects else ""
    return shlex.join(words), lacks


def _same(usual: Any, value: Any) -> bool:
    return bool((list(usual) if isinstance(usual, tuple) else usual) == value)


def _word(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
