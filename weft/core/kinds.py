"""What kind a value is, by a field's annotation: Python's callers may give anything, and errors say what was wanted."""

from __future__ import annotations

import functools
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

from weft.core.errors import ConfigError


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, NumPy's too; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a real number, NumPy's too; True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole_float(value: Any) -> bool:
    """Whether it is a float without a fraction: ``1e6``, which a command line takes too."""
    return is_number(value) and not is_whole(value) and float(value).is_integer()


def wrong_kind(name: str, wanted: str, value: Any) -> ConfigError:
    """The error for a value of another kind than ``wanted``, in words: "a whole number"."""
    return ConfigError(f"{name} must be {wanted}, got {value!r} (a {type(value).__name__})")


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a class's fields; ``Any`` where they cannot be made out (a name that only a type checker sees)."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, AttributeError, TypeError):
        return dict.fromkeys(cls.__dataclass_fields__, Any)  # type: ignore[attr-defined]


def is_union(kind: Any) -> bool:
    """Whether the type is ``A | B``."""
    return get_origin(kind) in (Union, types.UnionType)


def of_kind(name: str, kind: Any, value: Any) -> Any:
    """``value`` as plain Python has it, if it is of type ``kind``.

    NumPy's numbers become int and float, ``1e6`` becomes an int where one is wanted, text a Path.

    Raises ConfigError, naming it ``name``, if it is not. Types that cannot be checked, such as functions and
    protocols, let everything pass.
    """
    checks = [_check_for(option) for option in (get_args(kind) if is_union(kind) else (kind,))]
    if None in checks:
        return value
    known = [check for check in checks if check is not None]
    for check in known:
        if check.fits(value):
            return check.plain(value)
    raise wrong_kind(name, " or ".join(check.words for check in known), value)


class _Check(NamedTuple):
    words: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


_CHECKS: dict[Any, _Check] = {
    bool: _Check("True or False", lambda value: isinstance(value, bool), _same),
    int: _Check("a whole number", lambda value: is_whole(value) or _is_whole_float(value), int),
    float: _Check("a number", is_number, float),
    str: _Check("text", lambda value: isinstance(value, str), _same),
    Path: _Check("text or a path", lambda value: isinstance(value, str | os.PathLike), Path),
    Mapping: _Check("a dict", lambda value: isinstance(value, Mapping), _same),
    types.NoneType: _Check("None", lambda value: value is None, _same),
}


def _check_for(kind: Any) -> _Check | None:
    """How one type is checked; None where it cannot be."""
    found = _CHECKS.get(get_origin(kind) or kind)
    if found is not None or kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return found
    words = f"a {kind.__module__.partition('.')[0]}.{kind.__qualname__}"  # weft.Plan is defined in weft.plans.plan
    return _Check(words, lambda value: isinstance(value, kind), _same)
