"""Pictures as SVG text, for a page that stands by itself: a scene of shapes, and curves of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from weft.dashboard.curves import Floats
from weft.telemetry.figures import figure

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 10, 26
COLOURS = ("#2f6b5a", "#b4532a", "#3b5fa8", "#8a6d00", "#8c4a8f", "#1f7f92", "#a33b52", "#5c6b2c", "#6b5bb5", "#7a5a3c")


class Curve(NamedTuple):
    """A series to draw; NaN is left out. ``lowest`` and ``highest``, where given, are drawn as a band around it."""

    label: str
    x: Floats
    y: Floats
    colour: str
    lowest: Floats | None = None
    highest: Floats | None = None


def scene_svg(scene: dict[str, Any]) -> str:
    """What ``Shapes.to_json`` gave, as SVG; empty where nothing was drawn. Its looks are the page's style sheet's."""
    if not scene["shapes"]:
        return ""
    parts = [f'<svg class="flowchart" viewBox="0 0 {scene["width"]} {scene["height"]}" role="img">']
    for shape in scene["shapes"]:
        cls = quoteattr(shape["cls"])
        match shape["kind"]:
            case "rect":
                at = " ".join(f'{name}="{shape[name]}"' for name in ("x", "y", "width", "height", "rx"))
                parts.append(f"<rect class={cls} {at}/>")
            case "text":
                at = f'x="{shape["x"]}" y="{shape["y"]}" text-anchor="{shape["anchor"]}"'
                parts.append(f"<text class={cls} {at}>{escape(shape['words'])}</text>")
            case "path" if shape["cls"] != "flow":  # dashes that move say nothing on paper
                parts.append(f'<path class={cls} d="{shape["d"]}" stroke-width="{shape["stroke"]}"/>')
    return "\n".join([*parts, "</svg>"])


def curves_svg(curves: Sequence[Curve], title: str, axis: str) -> str:
    """A chart of some curves over one axis; empty where none has a value."""
    finite = [(c, _finite(c)) for c in curves]
    drawn = [(c, points) for c, points in finite if points]
    if not drawn:
        return ""
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for c, points in drawn for _, y in points] + [
        float(v)
        for c, _ in drawn
        for band in (c.lowest, c.highest)
        if band is not None
        for v in band
        if math.isfinite(v)
    ]
    left, right = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room

    def px(x: float) -> float:
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label={quoteattr(title)}>']
    for tick in ticks(low, high, 5):
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(tick):.1f}" y2="{py(tick):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{py(tick) + 3.5:.1f}" text-anchor="end">{_short(tick)}</text>')
    # The axis has its name where its last number would be.
    for tick in [tick for tick in ticks(left, right, 4) if tick <= left + 0.86 * (right - left)]:
        parts.append(f'<text x="{px(tick):.1f}" y="{HEIGHT - 9}" text-anchor="middle">{_short(tick)}</text>')
    parts.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 9}" text-anchor="end">{escape(axis)}</text>')
    for curve, points in drawn:
        parts += _band(curve, px, py)
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="1.5"/>')
        if len(points) < 24:
            parts += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="2" fill="{curve.colour}"/>' for x, y in points]
    return "\n".join([*parts, "</svg>"])


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two, about so many."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10 ** math.floor(math.log10(span / about))
    step = next((step * k for k in (1, 2, 5, 10) if span / (step * k) <= about), step * 10)
    first = math.ceil(low / step)
    return [round(k * step, 12) for k in range(first, math.floor(high / step) + 1)]


def _band(curve: Curve, px: Callable[[float], float], py: Callable[[float], float]) -> list[str]:
    if curve.lowest is None or curve.highest is None:
        return []
    rows = [(x, a, b) for x, a, b in zip(curve.x, curve.lowest, curve.highest, strict=True) if math.isfinite(a + b)]
    path = [f"{px(x):.1f},{py(b):.1f}" for x, _, b in rows] + [f"{px(x):.1f},{py(a):.1f}" for x, a, _ in reversed(rows)]
    return [f'<polygon points="{" ".join(path)}" fill="{curve.colour}" fill-opacity="0.15"/>'] if rows else []


def _finite(curve: Curve) -> list[tuple[float, float]]:
    return [
        (float(x), float(y)) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(x) and math.isfinite(y)
    ]


def _short(value: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}" if value == 0 or abs(value) >= 1e-3 else figure(value)
