"""Numbers as people read them."""

from __future__ import annotations

import math


def figure(value: float | int | str) -> str:
    """A number in about four digits, ``1,234``, ``0.0123``, ``1.2e-05``; ``–`` for NaN; text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "–"
    size = abs(value)
    if size == 0 or not math.isfinite(value):
        return f"{value:g}"
    if size >= 1e9 or size < 1e-4:
        return f"{value:.1e}"
    if size >= 1000:
        return f"{value:,.0f}"
    if size < 0.1:
        return f"{value:.4g}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3}f}"


def percent(share: float) -> str:
    """A share of one in percent; ``–`` for NaN."""
    return "–" if math.isnan(share) else f"{share:.0%}"


def duration(seconds: float) -> str:
    """A time span: ``42 s``, ``3:07``, ``2:15:00``, ``3 d 04:00``; ``–`` where it is not known."""
    if not math.isfinite(seconds):
        return "–"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days} d {hours:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def sparkline(values: list[float], width: int) -> str:
    """The last ``width`` values as bars of eighths, from the lowest to the highest of them; NaN is left out."""
    shown = [v for v in values if math.isfinite(v)][-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((v - low) * scale)] for v in shown)
