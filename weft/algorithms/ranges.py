"""The values that hyper-parameters may have, by the names of their fields.

A name means the same in every algorithm here, so its range is in one place. Each algorithm itself checks what depends
on several fields or on the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from weft.core.errors import ConfigError, UnknownName
from weft.core.kinds import is_number, is_whole, wrong_kind
from weft.graph.algorithm import Algorithm
from weft.nets import ACTIVATIONS
from weft.ops.optimizers import OPTIMIZERS

_Range = tuple[str, Callable[[Any], bool]]

_COUNT: _Range = ("at least 1", lambda value: value >= 1)
_FRACTION: _Range = ("between 0 and 1", lambda value: 0 <= value <= 1)
_POSITIVE: _Range = ("above 0", lambda value: value > 0)
_COST: _Range = ("at least 0", lambda value: value >= 0)

RANGES: dict[str, _Range] = {
    "epochs": _COUNT,
    "minibatches": _COUNT,
    "recurrent_size": _COUNT,
    "attention": _COST,
    "hidden": ("at least 1 in every layer", lambda value: value >= 1),
    "discount": _FRACTION,
    "trace_decay": _FRACTION,
    "learning_rate": _POSITIVE,
    "learning_rate_end": _COST,
    "clip": _POSITIVE,
    "dual_clip": ("above 1", lambda value: value > 1),
    "value_clip": _POSITIVE,
    "clip_rho": _POSITIVE,
    "clip_c": _POSITIVE,
    "reward_scale": ("a finite number", lambda value: True),
    "reward_clip": _POSITIVE,
    "value_cost": _COST,
    "entropy_cost": _COST,
    "entropy_cost_end": _COST,
    "max_gradient_norm": _POSITIVE,
    "target_kl": _POSITIVE,
    "deviation": _POSITIVE,
    "n_step": _COUNT,
    "capacity": _COUNT,
    "batch": _COUNT,
    "samples_per_insert": _POSITIVE,
    "learning_begins": _COUNT,
    "priority_power": _FRACTION,
    "importance_power": _FRACTION,
    "epsilon": _FRACTION,
    "epsilon_end": _FRACTION,
    "exploration": _FRACTION,
    "target_period": _COUNT,
    "priority_mix": _FRACTION,
    "huber": _POSITIVE,
    "blocks": _COST,
    "critics": _COUNT,
    "critic_learning_rate": _POSITIVE,
    "weight_decay": _COST,
    "target_rate": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "temperature": _POSITIVE,
    "target_entropy": ("a finite number", lambda value: True),
    "noise": _COST,
    "smoothing": _COST,
    "smoothing_clip": _POSITIVE,
    "policy_delay": _COUNT,
    "quantiles": _COST,
    "atoms": _COST,
    "value_min": ("a finite number", lambda value: True),
    "value_max": ("a finite number", lambda value: True),
    "updates": _COUNT,
    "expectile": ("above 0 and below 1", lambda value: 0 < value < 1),
    "weight_clip": _POSITIVE,
    "mixing": _COUNT,
    "hyper_hidden": ("at least 1 in every layer", lambda value: value >= 1),
}
"""Each field's range in words, and whether a finite number is in it. In a tuple, every number must be in it."""

WHOLE = {
    "epochs",
    "minibatches",
    "recurrent_size",
    "attention",
    "hidden",
    "n_step",
    "capacity",
    "batch",
    "learning_begins",
    "target_period",
    "blocks",
    "critics",
    "policy_delay",
    "quantiles",
    "atoms",
    "updates",
    "mixing",
    "hyper_hidden",
}
"""The fields of ``RANGES`` that must be whole numbers."""

CHOICES: dict[str, Iterable[str]] = {"activation": ACTIVATIONS, "optimizer": OPTIMIZERS}
"""The fields whose value is one of these names."""


def check_ranges(algorithm: Algorithm) -> None:
    """Raise ConfigError for the first field whose value is not allowed.

    A field in ``RANGES`` must be a number in its range, or None where that is its default. A field in ``CHOICES`` must
    be one of its names. A field whose default is True or False must be True or False. Other fields are not checked.
    """
    for field in fields(algorithm):
        value, name = getattr(algorithm, field.name), f"{type(algorithm).__name__}.{field.name}"
        if isinstance(field.default, bool) and not isinstance(value, bool):
            raise wrong_kind(name, "True or False", value)
        if field.name in CHOICES and value not in CHOICES[field.name]:
            raise UnknownName(field.name, value, CHOICES[field.name])
        if field.name not in RANGES or (value is None and field.default is None):
            continue
        if isinstance(field.default, tuple) and not isinstance(value, tuple | list):
            raise wrong_kind(name, f"a tuple, as {field.default}", value)
        (words, within), whole = RANGES[field.name], field.name in WHOLE
        or_none = " or None" if field.default is None else ""
        for number in value if isinstance(value, tuple | list) else (value,):
            if not (is_whole if whole else is_number)(number):
                raise wrong_kind(name, f"{'a whole number' if whole else 'a number'}{or_none}", number)
            if not math.isfinite(number):
                raise ConfigError(f"{name} must be a finite number{or_none}, got {value}")
            if not within(number):
                raise ConfigError(f"{name} must be {words}{or_none}, got {value}")
