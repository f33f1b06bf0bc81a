"""From words on a command line to values of a field's type, and back to how a type and a value are written there."""

from __future__ import annotations

import functools
import math
import operator
import types
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from weft.core.errors import ConfigError, nearest
from weft.core.kinds import is_union

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_PLAIN: dict[Any, str] = {int: "INT", float: "FLOAT", bool: "true|false", str: "TEXT", Path: "PATH"}


def can_be_said(kind: Any) -> bool:
    """Whether a command line can say a value of this type: numbers, text, choices, None, and tuples of them."""
    if kind in _PLAIN or kind is types.NoneType or get_origin(kind) is Literal:
        return True
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        return len(inner) == 2 and inner[1] is Ellipsis and can_be_said(inner[0]) and not is_many(inner[0])
    return is_union(kind) and all(can_be_said(option) and not is_many(option) for option in get_args(kind))


def is_many(kind: Any) -> bool:
    """Whether the type takes several words."""
    return get_origin(kind) is tuple


def read(kind: Any, words: list[str]) -> Any:
    """The value of type ``kind`` that ``words`` say (one word, unless ``is_many``). Raises ConfigError.

    Whole numbers may be written ``500_000`` or ``5e5``; tuples with commas too, and ``()`` for none.
    """
    if is_many(kind):
        one = get_args(kind)[0]
        parts = [part for word in words if word != "()" for part in word.split(",") if part]
        return tuple(_read_one(one, part) for part in parts)
    return _read_one(kind, words[0])


def sayable(kind: Any) -> Any:
    """The part of a type that a command line can say where None is said by leaving the flag out: its other options.

    ``Any`` where there is none.
    """
    options = get_args(kind) if is_union(kind) else (kind,)
    said = [option for option in options if option is not types.NoneType and can_be_said(option)]
    return functools.reduce(operator.or_, said) if said else Any


def metavar(kind: Any) -> str:
    """How the type is shown in a help text."""
    if kind is types.NoneType:
        return "none"
    if is_many(kind):
        return metavar(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return "{" + ",".join(str(choice) or "none" for choice in get_args(kind)) + "}"
    if is_union(kind):
        return "|".join(metavar(option) for option in get_args(kind))
    return _PLAIN[kind]


def write(value: Any) -> str:
    """The value as it would be written on a command line."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(write, value)) or "()"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read_one(kind: Any, word: str) -> Any:
    if is_union(kind):
        if types.NoneType in get_args(kind) and word.lower() in ("none", "null"):
            return None
        options = [option for option in get_args(kind) if option is not types.NoneType]
        for option in options[:-1]:
            try:
                return _read_one(option, word)
            except ConfigError:
                continue
        return _read_one(options[-1], word)
    if get_origin(kind) is Literal:
        return _choice(get_args(kind), word)
    if kind is bool:
        if word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        raise ConfigError(f"expected true or false, got {word!r}")
    if kind is int:
        return _whole(word)
    if kind is float:
        return _number(word)
    return kind(word)


def _choice(choices: tuple[Any, ...], word: str) -> Any:
    for choice in choices:
        if word == str(choice) or (choice == "" and word.lower() == "none"):
            return choice
    names = [str(choice) or "none" for choice in choices]
    near = nearest(word, names, count=1)
    asked = f" (did you mean {near[0]!r}?)" if near else ""
    raise ConfigError(f"expected one of {', '.join(names)}, got {word!r}{asked}")


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ConfigError(f"expected a whole number, got {word!r}")
    return int(number)


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ConfigError(f"expected a number, got {word!r}")
    return number
