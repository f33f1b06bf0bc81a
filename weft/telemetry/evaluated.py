"""What an evaluation in the run found, for people."""

from __future__ import annotations

import math

from weft.telemetry.figures import figure
from weft.telemetry.sink import Record


def has_evaluation(record: Record) -> bool:
    """Whether a record tells of an evaluation: each is in one record alone."""
    return "eval/return_mean" in record


def in_words(record: Record) -> str:
    """``487.3  (470.1 to 500.0)  20 episodes  version 625``; empty where a record has no evaluation."""
    if not has_evaluation(record):
        return ""
    parts = [figure(record["eval/return_mean"])]
    low, high = (record.get(f"eval/return_{end}", math.nan) for end in ("low", "high"))
    if not isinstance(low, str) and not isinstance(high, str) and math.isfinite(low):
        parts.append(f"({figure(low)} to {figure(high)})")
    if "eval/episodes" in record:
        count = record["eval/episodes"]
        parts.append(f"{figure(count)} episode{'' if count == 1 else 's'}")
    if "eval/version" in record:
        parts.append(f"version {figure(record['eval/version'])}")
    return "  ".join(parts)
