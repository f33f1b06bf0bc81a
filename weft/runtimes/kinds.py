"""What kinds of values a run's settings may have: Python's callers may give anything, and are told by name."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

from weft.core.errors import ConfigError
from weft.plans.plan import Plan

KINDS: tuple[tuple[type | tuple[type, ...], str, tuple[str, ...]], ...] = (
    (numbers.Integral, "a whole number", ("steps", "seed", "seeds", "envs", "max_lag", "ring", "keep_checkpoints")),
    (numbers.Real, "a number", ("checkpoint_seconds", "hang_seconds")),
    (str, "text", ("vector", "run", "wandb", "channel")),
    (bool, "True or False", ("lockstep", "quiet", "tensorboard")),
    ((str, Plan), "text or a weft.Plan", ("plan",)),
    (Mapping, "a dict", ("fields", "env_options")),
)
"""What fields must be, by their names; None too, where that is their default."""


def check_kinds(record: Any) -> None:
    """Raise ConfigError for the first field of ``record``, a dataclass, that is not of its kind."""
    kinds = {name: (kind, words) for kind, words, names in KINDS for name in names}
    for field in dataclasses.fields(record):
        value, may_be_none = getattr(record, field.name), field.default is None
        if field.name not in kinds or (value is None and may_be_none):
            continue
        kind, words = kinds[field.name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            or_none = " or None" if may_be_none else ""
            raise ConfigError(f"{field.name} must be {words}{or_none}, got {value!r} (a {type(value).__name__})")
