"""What is varied: for each field of the algorithm an interval, or a list of values.

learning_rate=1e-4..1e-2:log    between the two, evenly in the logarithm
trace_decay=0.8..1.0            between the two, evenly
entropy_cost=0,0.003,0.01       one of these
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import numpy as np

from weft.core.errors import ConfigError, UnknownName
from weft.core.kinds import hints_of, is_union, is_whole
from weft.graph.algorithm import Algorithm

RESAMPLED = 0.25
"""How often a member that explores draws a value anew, and does not change the one that it has."""

FACTOR = 1.25
"""What a value of a logarithmic interval is multiplied or divided by when a member explores."""

SHARE = 0.2
"""How far a value of a plain interval moves then, as a share of the interval."""

Values: TypeAlias = dict[str, Any]
"""A member's values by field: numbers in one program, else whatever the field takes."""


@dataclass(frozen=True)
class Interval:
    """Any number from ``low`` to ``high``; whole numbers where ``whole``."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the way from low (0) to high (1)."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return self.kept(value)

    def draw(self, random: np.random.Generator) -> float:
        """A value, evenly (in the logarithm)."""
        return self.at(float(random.random()))

    def points(self, count: int) -> list[float]:
        """So many values from low to high; fewer where whole numbers would come twice."""
        return list(dict.fromkeys(self.at(k / (count - 1)) for k in range(count)))

    def moved(self, value: float, random: np.random.Generator) -> float:
        """A value near ``value``, up or down by chance, within the interval."""
        up = bool(random.random() < 0.5)
        if self.log:
            return self.kept(value * FACTOR if up else value / FACTOR)
        step = SHARE * (self.high - self.low)
        return self.kept(value + step if up else value - step)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"

    def kept(self, value: float) -> float:
        """A value within the interval, as it is shown."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.6g}")  # as it is shown, it is


@dataclass(frozen=True)
class Choices:
    """One of some values, in the order given."""

    values: tuple[Any, ...]

    def draw(self, random: np.random.Generator) -> Any:
        """One of them."""
        return self.values[int(random.integers(len(self.values)))]

    def moved(self, value: Any, random: np.random.Generator) -> Any:
        """The one before or after ``value``, by chance; at an end, itself or its neighbour."""
        at = self.values.index(value) + (1 if random.random() < 0.5 else -1)
        return self.values[min(max(at, 0), len(self.values) - 1)]

    def __str__(self) -> str:
        return ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in self.values)


Space: TypeAlias = dict[str, Interval | Choices]
"""What is varied, by field."""


def read_space(vary: Mapping[str, Any], algorithm: Algorithm) -> Space:
    """What is varied, of texts as above, or of lists of values; checked against the algorithm's fields.

    Raises ConfigError: a field that is not there, an interval upside down, a single value.
    """
    if not vary:
        raise ConfigError(
            'nothing is varied: say which fields and between what, as in --vary "learning_rate=1e-4..1e-2:log" '
            '(in Python: vary={"learning_rate": "1e-4..1e-2:log"})'
        )
    known = {f.name for f in dataclasses.fields(algorithm)}
    space: Space = {}
    for name, said in vary.items():
        if name not in known:
            raise UnknownName(f"field of {type(algorithm).__name__} to vary", name, known)
        space[name] = _read(name, said, is_whole(getattr(algorithm, name)), _takes_floats(algorithm, name))
    return space


def split_said(said: Sequence[str]) -> dict[str, str]:
    """``FIELD=WHAT`` texts of a command line, by field. Raises ConfigError."""
    vary: dict[str, str] = {}
    for text in said:
        name, equals, what = text.partition("=")
        name = name.strip().replace("-", "_")
        if not name or not equals or not what.strip():
            raise ConfigError(f"--vary {text!r}: expected FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=VALUE,VALUE")
        if name in vary:
            raise ConfigError(f"--vary {text!r}: {name} is varied already, by {name}={vary[name]}")
        vary[name] = what.strip()
    return vary


def draws(space: Space, count: int, random: np.random.Generator) -> list[Values]:
    """Values for so many members, drawn at random, each field by itself."""
    return [{name: one.draw(random) for name, one in space.items()} for _ in range(count)]


def grid(space: Space, most: int) -> list[Values]:
    """Every combination of values, at most so many: all of each list, and as many points of each interval as fit."""
    listed = math.prod(len(one.values) for one in space.values() if isinstance(one, Choices))
    intervals = sum(isinstance(one, Interval) for one in space.values())
    points = int((most / listed) ** (1 / intervals) + 1e-9) if intervals else 0
    if listed > most or (intervals and points < 2):
        least = listed * 2**intervals
        raise ConfigError(
            f"members={most}: the grid has at least {least} points, one for each combination of values and two for "
            f"each interval. Ask for {least} members or more, vary fewer values, or use how='random'."
        )
    axes = [list(one.values) if isinstance(one, Choices) else one.points(points) for one in space.values()]
    return [dict(zip(space, combination, strict=True)) for combination in itertools.product(*axes)]


def explored(space: Space, values: Values, random: np.random.Generator) -> Values:
    """Values for a member that has copied another, whose ``values`` these were: each moved, or now and then drawn."""
    found = {}
    for name, one in space.items():
        anew = bool(random.random() < RESAMPLED)
        found[name] = one.draw(random) if anew else one.moved(values[name], random)
    return found


def _takes_floats(algorithm: Algorithm, name: str) -> bool:
    cls: type = type(algorithm)
    kind = hints_of(cls)[name]
    return kind is float or (is_union(kind) and float in get_args(kind))


def _read(name: str, said: Any, whole: bool, floats: bool) -> Interval | Choices:
    if isinstance(said, str) and ".." in said:
        return _interval(name, said, whole)
    values = [_value(word) for word in said.split(",")] if isinstance(said, str) else said
    if not isinstance(values, list | tuple):
        raise ConfigError(
            f"vary {name}={said!r}: expected a list of values, or a text: 'LOW..HIGH', 'LOW..HIGH:log', 'VALUE,VALUE'"
        )
    values = [float(value) if floats and is_whole(value) else value for value in values]
    if len(dict.fromkeys(values)) < 2:
        raise ConfigError(f"vary {name}={said}: a single value varies nothing. Set it with --algo.{name} instead.")
    return Choices(tuple(dict.fromkeys(values)))


def _interval(name: str, said: str, whole: bool) -> Interval:
    ends, _, scale = said.partition(":")
    low, high = (_number(name, said, word) for word in ends.split("..", 1))
    if scale not in ("", "log", "linear"):
        raise ConfigError(f"vary {name}={said}: unknown scale {scale!r}. Say :log, or nothing for an even one.")
    if not low < high:
        raise ConfigError(f"vary {name}={said}: the interval is upside down or empty. Did you mean {high:g}..{low:g}?")
    if scale == "log" and low <= 0:
        raise ConfigError(f"vary {name}={said}: a logarithmic interval must be above 0, and it begins at {low:g}")
    return Interval(low, high, scale == "log", whole)


def _number(name: str, said: str, word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"vary {name}={said}: {word.strip()!r} is no number. Expected LOW..HIGH, or LOW..HIGH:log.")
    return number


def _value(word: str) -> Any:
    word = word.strip()
    if word.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
