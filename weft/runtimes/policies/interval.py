"""How far a mean of a few episodes can be trusted: Student's interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

CONFIDENCE = 0.95
"""So often an interval holds the mean of endlessly many episodes, where returns are about normal."""


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the mean of ``values``, drawn independently; NaN for one alone, which tells nothing of it."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return math.nan, math.nan
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return mean - half, mean + half
