"""The environments that come with Weft, written in JAX: ``weft:NAME``.

The table below is plain text: listing it loads neither JAX nor any environment; ``load`` does.
"""

from __future__ import annotations

from dataclasses import Field, fields
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
    "Spread-v0": Builtin(f"{__name__}.spread:Spread", "agents cover landmarks together; MPE's simple_spread"),
    "Tag-v0": Builtin(f"{__name__}.tag:Tag", "a team of adversaries hunts a team of agents; MPE's simple_tag"),
    "Roshambo-v0": Builtin(
        f"{__name__}.roshambo:Roshambo", "rock, paper, scissors with unequal stakes; its equilibrium is known"
    ),
    "Rally-v0": Builtin(f"{__name__}.rally:Rally", "two paddles and a ball; who lets it pass loses, and skill shows"),
    "HideAndSeek-v0": Builtin(
        f"{__name__}.hide_and_seek:HideAndSeek", "hiders build with boxes, seekers look for them; two teams"
    ),
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
    known_options = {field.name: field for field in fields(kind)}
    for option, value in options.items():
        if option not in known_options:
            raise UnknownName(f"option of weft:{name}", option, list(known_options))
        wanted = _unlike(known_options[option], value)
        if wanted:
            raise ConfigError(f"environment 'weft:{name}': {option} must be {wanted}, got {value!r}")
    env: JaxEnv = kind(**options)
    return env


def _unlike(field: Field[Any], value: Any) -> str:
    """What ``value`` must be and is not, to be set in place of the field's default; "" where it can be."""
    if type(field.default) is bool and type(value) is not bool:
        return "true or false"
    if type(field.default) is float and type(value) not in (int, float):
        return "a number"
    least = field.metadata.get("least", 1)
    if type(field.default) is int and (type(value) is not int or value < least):
        return f"a whole number from {least} on"
    return ""
