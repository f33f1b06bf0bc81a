"""Outcomes as a table for people (Markdown that reads well as plain text) and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.measure import Outcome, Ratio


def tables(outcomes: Sequence[Outcome]) -> str:
    """One block for each case: its values, its ratios, its notes."""
    return "\n".join(_case(outcome) for outcome in outcomes)


def to_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Everything that was measured, round by round."""
    return [
        {
            "case": outcome.case.title,
            "unit": outcome.case.unit,
            "values": {name: list(spread.values) for name, spread in outcome.spreads.items()},
            "medians": {name: spread.median for name, spread in outcome.spreads.items()},
            "ratios": [_ratio_json(ratio) for ratio in outcome.ratios],
            "left_out": outcome.case.left_out,
            "notes": outcome.case.notes,
        }
        for outcome in outcomes
    ]


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table padded to straight columns: the first to the left, the others to the right."""
    header, rows = _escaped(header), [_escaped(row) for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *others = [
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def _escaped(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]  # a plan's boundary is not a column's


def _case(outcome: Outcome) -> str:
    case = outcome.case
    rows = [
        [name, number(spread.median), f"{number(spread.low)} – {number(spread.high)}"]
        for name, spread in outcome.spreads.items()
    ]
    rows += [[name, how, ""] for name, how in case.left_out.items()]
    parts = [f"### {case.title}", "", grid([case.unit, "median", "min – max"], rows), ""]
    if outcome.ratios:
        header = ["ratio", "of medians", "median of pairs", "min – max", "aim", ""]
        parts += [grid(header, [_ratio(ratio) for ratio in outcome.ratios]), ""]
    return "\n".join(parts + [f"{note}\n" for note in case.notes])


def _ratio(ratio: Ratio) -> list[str]:
    aim = ratio.comparison.at_least
    reached = "" if aim is None else "reached" if min(ratio.of_medians, ratio.of_pairs) >= aim else "missed"
    return [
        ratio.comparison.known or f"{ratio.comparison.subject} / {ratio.against}",
        f"{ratio.of_medians:.3f}",
        f"{ratio.of_pairs:.3f}",
        f"{ratio.low:.3f} – {ratio.high:.3f}",
        "" if aim is None else f"≥ {aim:g}",
        reached,
    ]


def _ratio_json(ratio: Ratio) -> dict[str, Any]:
    return {
        "subject": ratio.comparison.subject,
        "against": ratio.against,
        "of_medians": ratio.of_medians,
        "median_of_pairs": ratio.of_pairs,
        "min": ratio.low,
        "max": ratio.high,
        "aim": ratio.comparison.at_least,
    }


def number(value: float) -> str:
    """Four digits that mean something: 0.1234, 12.34, 12,340."""
    if value >= 1000:
        digits = len(f"{value:.0f}") - 4
        return f"{round(value, -digits):,.0f}"
    return f"{value:#.4g}".rstrip(".")
