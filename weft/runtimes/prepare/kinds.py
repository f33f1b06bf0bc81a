"""What kinds of values a run's settings may have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from weft.core.kinds import is_number, is_whole, wrong_kind
from weft.plans.plan import Plan

KINDS: tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...] = (
    ("a whole number", is_whole, ("steps", "seed", "seeds", "envs", "max_lag", "ring", "keep_checkpoints")),
    ("a number", is_number, ("checkpoint_seconds", "hang_seconds")),
    ("text", lambda value: isinstance(value, str), ("vector", "run", "wandb", "channel")),
    ("True or False", lambda value: isinstance(value, bool), ("lockstep", "quiet", "tensorboard")),
    ("text or a weft.Plan", lambda value: isinstance(value, str | Plan), ("plan",)),
    ("a dict", lambda value: isinstance(value, Mapping), ("fields", "env_options")),
)
"""What fields must be, in words and as a check, by their names; None too, where that is their default."""


def check_kinds(record: Any) -> None:
    """Raise ConfigError for the first field of ``record``, a dataclass, that is not of its kind."""
    kinds = {name: (words, fits) for words, fits, names in KINDS for name in names}
    for field in dataclasses.fields(record):
        value, may_be_none = getattr(record, field.name), field.default is None
        if field.name not in kinds or (value is None and may_be_none):
            continue
        words, fits = kinds[field.name]
        if not fits(value):
            raise wrong_kind(field.name, f"{words} or None" if may_be_none else words, value)
