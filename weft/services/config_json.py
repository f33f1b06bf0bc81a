"""A run's config as JSON, and what differs between two of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from weft.core.errors import ConfigError

_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One field that differs; a side that lacks it has ``absent`` in its words."""

    field: str  # dotted: algo.learning_rate
    old: str
    new: str
    added: bool = False  # the old side lacks it

    def is_one_of(self, fields: frozenset[str]) -> bool:
        """Whether it is one of ``fields``, or lies below one."""
        return any(self.field == f or self.field.startswith(f + ".") for f in fields)

    def __str__(self) -> str:
        return f"{self.field}: {self.old} → {self.new}"


def to_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as it reads back from its file: tuples are lists; infinity and NaN are ``inf``, ``-inf``, ``nan``.

    NumPy's numbers become Python's. Raises ConfigError for what JSON cannot hold.
    """
    try:
        plain: dict[str, Any] = msgspec.to_builtins(_plain(config), str_keys=True)
    except TypeError as error:
        raise ConfigError(
            f"the config cannot be written as JSON: {error}. Use numbers, text, lists and dicts."
        ) from None
    return plain


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[Difference]:
    """The fields in which two configs differ, in order of name; dicts are compared field by field."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        field, before, after = f"{prefix}{key}", old.get(key, _ABSENT), new.get(key, _ABSENT)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{field}.")
        elif type(before) is bool or type(after) is bool:
            if before is not after:  # True is not 1 here
                found.append(Difference(field, _words(before), _words(after), before is _ABSENT))
        elif before != after:
            found.append(Difference(field, _words(before), _words(after), before is _ABSENT))
    return found


def _words(value: Any) -> str:
    return "absent" if value is _ABSENT else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
