"""The rule of a curriculum: a function, or its name, ``package.module:function``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from weft.core.errors import THEIRS, ConfigError
from weft.envs.dials import checked
from weft.envs.importing import import_for

Rule: TypeAlias = Callable[[Mapping[str, float] | None, Mapping[str, float]], Mapping[str, float]]
"""``rule(found, options) -> options``; ``found`` is None and ``options`` is empty before the first evaluation."""


def rule_of(given: str | Rule | None) -> Rule | None:
    """The rule that a run was asked to follow. Raises ConfigError where it is none."""
    if given is None:
        return None
    if not isinstance(given, str):
        if not callable(given):
            raise ConfigError(f"curriculum must be a function (found, options) -> options, got {given!r}")
        return given
    module, colon, name = given.partition(":")
    if not colon:
        raise ConfigError(f"curriculum {given!r}: expected package.module:function")
    found = getattr(import_for(given, module), name, None)
    if not callable(found):
        raise ConfigError(f"curriculum {given!r}: module {module!r} has no function {name!r}")
    rule: Rule = found
    return rule


def first_options(rule: Rule) -> dict[str, float]:
    """The options that a run begins with. Raises ConfigError where the rule gives none."""
    name = f"the curriculum {getattr(rule, '__qualname__', rule)!r}, before the first evaluation,"
    try:
        given: Any = rule(None, {})
    except THEIRS as error:
        raise ConfigError(
            f"{name} raised {type(error).__name__}: {error}. It is called with None and {{}} for the options to begin "
            "with."
        ) from error
    return checked(name, given)


def name_of(given: str | Rule | None) -> str | None:
    """A rule in ``config.json``: its name."""
    if given is None or isinstance(given, str):
        return given
    return f"{getattr(given, '__module__', '?')}:{getattr(given, '__qualname__', type(given).__qualname__)}"
