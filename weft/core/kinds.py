"""What kind a value is: Python's callers may give anything, and are told by name."""

from __future__ import annotations

import numbers
from typing import Any

from weft.core.errors import ConfigError


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, NumPy's too; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a real number, NumPy's too; True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def wrong_kind(name: str, wanted: str, value: Any) -> ConfigError:
    """The error for a value of another kind than ``wanted``, in words: "a whole number"."""
    return ConfigError(f"{name} must be {wanted}, got {value!r} (a {type(value).__name__})")
