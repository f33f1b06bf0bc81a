"""What a run's settings and its caller want with each record."""

from __future__ import annotations

from typing import Any

from weft.runtimes.prepare.settings import Settings
from weft.telemetry.stopping import Hooks, reached


def hooks_of(settings: Settings, on_record: Any = None, stop_when: Any = None) -> Hooks:
    """A sink of the two functions, where they are given, and of ``stop_at``."""
    figure = "eval/return_mean" if settings.eval_every else "return_mean"
    return Hooks(on_record, stop_when, None if settings.stop_at is None else reached(settings.stop_at, figure))
