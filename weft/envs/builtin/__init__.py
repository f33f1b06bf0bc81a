"""The environments that come with Weft, written in JAX: ``weft:NAME``.

The table below is plain text: listing it loads neither JAX nor any environment; ``load`` does.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any, NamedTuple

from weft.core.errors import ConfigError, UnknownName
from weft.envs.protocol import JaxEnv


class Builtin(NamedTuple):
    """One built-in environment, before it is loaded."""

    target: str  # "module:Class"
    summary: str  # one line for `weft envs`


BUILTIN: dict[str, Builtin] = {
    "CartPole-v1": Builtin(f"{__name__}.cartpole:CartPole", "balance a pole on a cart; Gymnasium's dynamics"),
    "Pendulum-v1": Builtin(f"{__name__}.pendulum:Pendulum", "swing a pendulum up by torque; Gymnasium's dynamics"),
    "Acrobot-v1": Builtin(f"{__name__}.acrobot:Acrobot", "swing a two-link arm up by its elbow; Gymnasium's dynamics"),
    "MountainCar-v0": Builtin(
        f"{__name__}.mountain_car:MountainCar", "rock a weak car up a hill; Gymnasium's dynamics"
    ),
    "Catch-v0": Builtin(f"{__name__}.catch:Catch", "move a paddle under a falling ball, on a 10 by 5 board"),
    "Memory-v0": Builtin(f"{__name__}.memory:Memory", "repeat a cue after a blank delay; only memory can solve it"),
    "Orchard-v0": Builtin(f"{__name__}.orchard:Orchard", "catch apples and dodge stones, seen as 16 by 16 pixels"),
    "TwoStep-v0": Builtin(
        f"{__name__}.two_step:TwoStep", "two agents choose a game and play it; no sum of their values tells the best"
    ),
}
"""What can be loaded, by name without the ``weft:`` prefix."""


def load(name: str, **options: Any) -> JaxEnv:
    """The built-in environment ``name`` (without ``weft:``); ``options`` are the fields of its class. Loads JAX."""
    if name not in BUILTIN:
        known = [f"weft:{n}" for n in BUILTIN]
        raise UnknownName("environment", f"weft:{name}", known, "'weft envs' lists all that can be used here.")
    module, _, attribute = BUILTIN[name].target.partition(":")
    kind = getattr(import_module(module), attribute)
    defaults = {field.name: field.default for field in fields(kind)}
    for option, value in options.items():
        if option not in defaults:
            raise UnknownName(f"option of weft:{name}", option, list(defaults))
        if type(defaults[option]) is int and (type(value) is not int or value < 1):
            raise ConfigError(f"environment 'weft:{name}': {option} must be a whole number from 1 on, got {value!r}")
    env: JaxEnv = kind(**options)
    return env
