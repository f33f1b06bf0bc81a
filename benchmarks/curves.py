"""Curves over several seeds: their interquartile mean, how sure one can be of it, and a picture of it as SVG.

The interquartile mean leaves out the lowest and the highest quarter of the seeds; the interval is a percentile
bootstrap over the seeds (Agarwal et al., arXiv 2108.13264). With five seeds such an interval is a rough one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

NDArray = np.ndarray[Any, Any]

RESAMPLES = 2_000
POINTS = 80
COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#d97706", "#0891b2", "#be185d")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 380, 64, 44, 34, 16


class Curve(NamedTuple):
    """One algorithm's returns over the steps of a run."""

    steps: NDArray  # [P] of one seed
    middle: NDArray  # [P] the interquartile mean over seeds
    low: NDArray  # [P] 95% of resamples are between low and high
    high: NDArray


def interquartile_mean(values: NDArray) -> NDArray:
    """Over the first axis (``[K, ...]``): the mean of the middle half, in which a value may count in part."""
    ordered = np.sort(values, axis=0)
    count = len(ordered)
    edges = np.arange(count)
    weight = np.clip(np.minimum(edges + 1, 0.75 * count) - np.maximum(edges, 0.25 * count), 0.0, 1.0)
    return np.asarray(np.tensordot(weight, ordered, axes=1) / weight.sum())


def interval(values: NDArray, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Between which two the interquartile means of 95% of resamples of ``values`` (``[K, ...]``) are."""
    draw = np.random.default_rng(seed)
    means = [interquartile_mean(values[draw.integers(0, len(values), len(values))]) for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


def curve(seeds: Sequence[Sequence[tuple[float, float]]]) -> Curve:
    """Of each seed its (steps, return), in the order of the steps; looked at where all seeds have something."""
    begin, end = max(s[0][0] for s in seeds), min(s[-1][0] for s in seeds)
    steps = np.linspace(begin, end, POINTS)
    values = np.stack([np.interp(steps, *np.array(s, float).T) for s in seeds])
    return Curve(steps, interquartile_mean(values), *interval(values))


def picture(title: str, curves: Mapping[str, Curve]) -> str:
    """An SVG: a line and a band for each curve, axes, and a legend. Readable on light and on dark ground."""
    right = max(float(c.steps[-1]) for c in curves.values())
    low, high = min(float(c.low.min()) for c in curves.values()), max(float(c.high.max()) for c in curves.values())
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-9 else (low, high)

    def x(steps: NDArray) -> NDArray:
        return LEFT + steps / right * (WIDTH - LEFT - RIGHT)

    def y(values: NDArray) -> NDArray:
        return TOP + (high - values) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def points(steps: NDArray, values: NDArray) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x(steps), y(values), strict=True))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" fill="#111827">{escape(title)}</text>',
    ]
    for value in np.linspace(low, high, 5):
        at = float(y(np.array(value)))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#374151">{value:.4g}</text>')
    for value in np.linspace(0.0, right, 5):
        at = float(x(np.array(value)))
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#374151">{value:,.0f}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#374151">env steps</text>'
    )
    for k, (name, c) in enumerate(curves.items()):
        colour = COLOURS[k % len(COLOURS)]
        band = f"{points(c.steps, c.high)} {points(c.steps[::-1], c.low[::-1])}"
        parts.append(f'<polygon points="{band}" fill="{colour}" opacity="0.15"/>')
        parts.append(
            f'<polyline points="{points(c.steps, c.middle)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        at = HEIGHT - BOTTOM - 12 - 16 * (len(curves) - 1 - k)
        parts.append(f'<text x="{WIDTH - RIGHT - 8}" y="{at}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
