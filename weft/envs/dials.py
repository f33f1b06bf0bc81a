"""Options of an environment that change while a run goes on: a few named numbers, read where an episode begins.

One process turns the dials, and any number read them: in one process an array, between workers words of the account.
NumPy only: environment workers have it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from weft.core.errors import ConfigError
from weft.envs.protocol import EnvSource

MOST = 12
"""Dials of a run: as many as the account has words for."""

WORDS = 1 + MOST
"""Float64 words that dials need: how often they were turned, and their values."""


class Dials:
    """Named numbers with one writer; ``words`` (``[WORDS]`` float64, the first is a count) is where they lie."""

    def __init__(self, names: tuple[str, ...], words: np.ndarray[Any, Any] | None = None) -> None:
        self.names = names
        self._words = np.zeros(WORDS) if words is None else words

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Dials:
        """Dials at ``values``."""
        if len(values) > MOST:
            raise ConfigError(f"a curriculum may set at most {MOST} options, got {len(values)}: {', '.join(values)}")
        dials = cls(tuple(values))
        dials.turn(values)
        return dials

    @property
    def turned(self) -> int:
        """How often they were turned: another number means that something may have changed."""
        return int(self._words[0])

    def now(self) -> dict[str, float]:
        """The values, all of the same turn."""
        while True:
            before = float(self._words[0])
            values = self._words[1 : 1 + len(self.names)].tolist()
            if before % 2 == 0 and self._words[0] == before:
                return dict(zip(self.names, values, strict=True))

    def turn(self, values: Mapping[str, float]) -> None:
        """Set all of them; odd while it is being done, so that no reader takes half of it."""
        self._words[0] += 1
        self._words[1 : 1 + len(self.names)] = [values[name] for name in self.names]
        self._words[0] += 1

    def move_to(self, words: np.ndarray[Any, Any]) -> None:
        """Lie in other words from now on, with the values of now."""
        values, self._words = self.now(), words
        self.turn(values)


def checked(what: str, given: Any, names: tuple[str, ...] | None = None) -> dict[str, float]:
    """What a rule gave, as plain numbers by name; ``names`` are those that it must have. Raises ConfigError."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{what} must give a dict of options, by name, got {given!r}")
    for name, value in given.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not isinstance(name, str) or not number or not math.isfinite(value):
            raise ConfigError(f"{what} gave {name!r}: {value!r}; options are finite numbers by name")
    if names is not None and set(given) != set(names):
        raise ConfigError(
            f"{what} gave the options {', '.join(sorted(given))}, and began with {', '.join(sorted(names))}: "
            "it must give all of them, and no others, each time"
        )
    return {name: float(given[name]) for name in (names or given)}


def dialled(source: EnvSource, dials: Dials | None) -> EnvSource:
    """An environment whose episodes begin with the options that ``dials`` show; refuses one that takes none."""
    if dials is None:
        return source
    if source.pure is not None:
        if not hasattr(source.pure, "reset_with"):
            raise ConfigError(
                f"environment {source.name!r} has no reset_with(key, options), so that a curriculum cannot set "
                f"{', '.join(dials.names)}. Write one; options is a dict of numbers."
            )
        from weft.envs.dialled_jax import DialledJax

        return replace(source, pure=DialledJax(source.pure, dials))
    from weft.envs.dialled_gymnasium import dialled_factory

    return replace(source, host=dialled_factory(source, dials))
