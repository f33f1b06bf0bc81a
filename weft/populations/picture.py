"""A lineage as an SVG picture: a lane for each member, coloured by its return, and an arrow for each copy.

Below, the values of each varied field over the steps. The thick line is the best member's ancestry: whose params it had
when.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from weft.populations.lineage import Lineage

WIDTH, LEFT, RIGHT, TOP, LANE, PANEL, GAP = 760, 92, 20, 44, 17, 130, 34
LOW, HIGH = (219, 234, 254), (30, 64, 175)  # the colours of the lowest and of the highest return
NONE, LINE, COPY, TEXT = "#d1d5db", "#dc2626", "#6b7280", "#374151"


def picture(lineage: Lineage, best: int, title: str) -> str:
    """The picture, readable on light and on dark ground."""
    rounds = lineage.rounds
    count = max((entry.member for r in rounds for entry in r.members), default=0) + 1
    last = max(rounds[-1].env_steps, 1) if rounds else 1
    fields = [name for name in lineage.fields if _numeric(lineage, name)]
    lanes = TOP + count * LANE
    height = lanes + 42 + len(fields) * (PANEL + GAP)

    def x(steps: float) -> float:
        return LEFT + steps / last * (WIDTH - LEFT - RIGHT)

    def y(member: int) -> float:
        return TOP + (member + 0.5) * LANE

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14" fill="#111827">{escape(title)}</text>',
        *_lanes(lineage, count, x, y),
        *_copies(lineage, x, y),
        _ancestry(lineage, best, x, y),
        *_steps(last, lanes + 16, x),
    ]
    for k, name in enumerate(fields):
        parts += _panel(lineage, name, best, lanes + 30 + GAP + k * (PANEL + GAP), x)
    return "\n".join([*(part for part in parts if part), "</svg>", ""])


def _lanes(lineage: Lineage, count: int, x: Callable[[float], float], y: Callable[[int], float]) -> list[str]:
    """A bar for each round of each member, in the colour of the return at its end."""
    rounds = lineage.rounds
    known = [e.return_mean for r in rounds for e in r.members if e.return_mean is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    parts = [
        f'<text x="{LEFT - 8}" y="{y(k) + 4:.1f}" text-anchor="end" fill="{TEXT}">{k}</text>' for k in range(count)
    ]
    parts.append(f'<text x="{LEFT - 26}" y="{TOP - 8}" text-anchor="end" fill="{TEXT}">member</text>')
    for before, after in itertools.pairwise(rounds):
        trained = {entry.member for entry in before.members}  # the others begin with the next round
        for entry in (entry for entry in after.members if entry.member in trained):
            shade = NONE if entry.return_mean is None else _colour((entry.return_mean - low) / max(high - low, 1e-9))
            left, right = x(before.env_steps), x(after.env_steps)
            parts.append(
                f'<rect x="{left:.1f}" y="{y(entry.member) - LANE / 2 + 2:.1f}" width="{right - left:.1f}" '
                f'height="{LANE - 4}" fill="{shade}"/>'
            )
    legend = [(low, "lowest return"), (high, "highest")] if known else []
    for k, (value, word) in enumerate(legend):
        at = WIDTH - RIGHT - 260 + 140 * k
        parts.append(f'<rect x="{at}" y="{TOP - 18}" width="12" height="12" fill="{_colour(float(k))}"/>')
        parts.append(f'<text x="{at + 17}" y="{TOP - 8}" fill="{TEXT}">{word} {value:.4g}</text>')
    return parts


def _copies(lineage: Lineage, x: Callable[[float], float], y: Callable[[int], float]) -> list[str]:
    """A line from each member that was copied to the one that copied it, with a dot where it ends."""
    parts = []
    for done in lineage.rounds:
        for entry in done.members:
            if entry.copied is not None:
                at, begins, ends = x(done.env_steps), y(entry.copied), y(entry.member)
                bend = min(22.0, 4 + abs(ends - begins) / 6)
                parts.append(
                    f'<path d="M{at:.1f},{begins:.1f} C{at + bend:.1f},{begins:.1f} {at + bend:.1f},{ends:.1f} '
                    f'{at:.1f},{ends:.1f}" fill="none" stroke="{COPY}" stroke-width="0.9"/>'
                )
                parts.append(f'<circle cx="{at:.1f}" cy="{ends:.1f}" r="2.2" fill="{COPY}"/>')
    return parts


def _ancestry(lineage: Lineage, best: int, x: Callable[[float], float], y: Callable[[int], float]) -> str:
    """Whose params the best member had, from the first round to the last."""
    rounds, line = lineage.rounds, lineage.ancestors(best)
    if len(rounds) < 2:
        return ""
    points = []
    for k, member in enumerate(line[:-1]):
        if not _trains(lineage, member, k):
            continue
        points += [(x(rounds[k].env_steps), y(member)), (x(rounds[k + 1].env_steps), y(member))]
    return _polyline(points, LINE, 2.2)


def _panel(lineage: Lineage, name: str, best: int, top: float, x: Callable[[float], float]) -> list[str]:
    """One field's values over the steps: a thin line for each member, a thick one for the best member's ancestry."""
    rounds = lineage.rounds
    values = [float(e.values[name]) for r in rounds for e in r.members]
    low, high = min(values), max(values)
    log = low > 0 and high / low >= 20
    scale: Callable[[float], float] = math.log10 if log else float
    bottom, ceiling = scale(low), scale(high)

    def y(value: float) -> float:
        return top + PANEL - (scale(value) - bottom) / max(ceiling - bottom, 1e-12) * PANEL

    parts = [f'<text x="{LEFT}" y="{top - 6:.0f}" fill="{TEXT}">{escape(name)}{" (logarithmic)" if log else ""}</text>']
    for share in (0.0, 0.5, 1.0):
        at = bottom + share * (ceiling - bottom)
        value = 10**at if log else at
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e5e7eb"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="{TEXT}">{value:.3g}</text>')
    line = lineage.ancestors(best)
    members = sorted({entry.member for done in rounds for entry in done.members})
    for member in members:
        parts.append(_polyline(_stairs(lineage, name, [member] * len(rounds), x, y), COPY, 0.7))
    return [*parts, _polyline(_stairs(lineage, name, line, x, y), LINE, 2.2)]


def _stairs(
    lineage: Lineage,
    name: str,
    line: Sequence[int],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[tuple[float, float]]:
    """The values that a line of members had between rounds: round ``k`` with those of ``line[k]``."""
    points = []
    for k in range(len(lineage.rounds) - 1):
        if not _trains(lineage, line[k], k):
            continue
        found = {entry.member: entry for entry in lineage.rounds[k].members}[line[k]]
        at = y(float(found.values[name]))
        points += [(x(lineage.rounds[k].env_steps), at), (x(lineage.rounds[k + 1].env_steps), at)]
    return points


def _steps(last: int, at: float, x: Callable[[float], float]) -> list[str]:
    """The axis of env steps."""
    marks = [
        f'<text x="{x(last * k / 4):.1f}" y="{at:.0f}" text-anchor="middle" fill="{TEXT}">{last * k // 4:,}</text>'
        for k in range(4)
    ]
    words = f"{last:,} env steps of each"
    return [*marks, f'<text x="{x(last):.1f}" y="{at:.0f}" text-anchor="end" fill="{TEXT}">{words}</text>']


def _polyline(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    text = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{width}"/>' if points else ""


def _colour(share: float) -> str:
    mixed = (round(a + (b - a) * min(max(share, 0.0), 1.0)) for a, b in zip(LOW, HIGH, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _trains(lineage: Lineage, member: int, k: int) -> bool:
    """Whether a member is trained between round ``k`` and the one after it."""
    return all(any(entry.member == member for entry in done.members) for done in lineage.rounds[k : k + 2])


def _numeric(lineage: Lineage, name: str) -> bool:
    values = [entry.values[name] for r in lineage.rounds for entry in r.members]
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
