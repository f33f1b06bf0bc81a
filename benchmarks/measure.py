"""Interleaved measurement: A, B, A, B, ..., so that what slows the machine for a while slows everyone alike.

A case holds contenders that are measured in the same unit, and says which are compared. All cases of a run take turns,
contender by contender, for as many rounds as asked for.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Comparison:
    """``subject`` divided by ``against``; of several in ``against`` the one with the highest median counts."""

    subject: str
    against: tuple[str, ...]
    at_least: float | None = None  # what we aim to reach; None: only told
    known: str = ""  # what the ratio is called in the table, where "A / B" does not say enough


@dataclass
class Case:
    """Contenders measured in one unit. Each blocks and returns one value when called; its state stays."""

    title: str
    unit: str
    contenders: dict[str, Callable[[], float]]
    comparisons: Sequence[Comparison] = ()
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # what could not be measured: "refused", "failed"


class Spread(NamedTuple):
    """The values of one contender, in order of the rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)


class Ratio(NamedTuple):
    """How two contenders compare."""

    comparison: Comparison
    against: str  # which one it was in the end
    of_medians: float
    of_pairs: float  # the median of the ratios within each round
    low: float  # the smallest ratio within a round
    high: float


class Outcome(NamedTuple):
    """A case measured."""

    case: Case
    spreads: dict[str, Spread]
    ratios: list[Ratio]


def interleave(cases: Sequence[Case], rounds: int, tell: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Measure every contender of every case once a round; every other round goes the other way round.

    Going back and forth keeps one contender from always being measured in the wake of the same neighbour.
    """
    values: dict[tuple[int, str], list[float]] = {}
    turns = [(index, name) for index, case in enumerate(cases) for name in case.contenders]
    for number in range(rounds):
        for index, name in turns if number % 2 == 0 else reversed(turns):
            case = cases[index]
            value = case.contenders[name]()
            values.setdefault((index, name), []).append(value)
            tell(f"round {number + 1}/{rounds}  {case.title}  {name}: {value:,.4g} {case.unit}")
    outcomes = []
    for index, case in enumerate(cases):
        spreads = {name: Spread(tuple(values[index, name])) for name in case.contenders}
        outcomes.append(Outcome(case, spreads, compare(case.comparisons, spreads)))
    return outcomes


def compare(comparisons: Sequence[Comparison], spreads: dict[str, Spread]) -> list[Ratio]:
    """The ratios of a case; a comparison whose contenders were not measured is left out."""
    ratios = []
    for comparison in comparisons:
        present = [name for name in comparison.against if name in spreads]
        if comparison.subject not in spreads or not present:
            continue
        best = max(present, key=lambda name: spreads[name].median)
        subject, against = spreads[comparison.subject], spreads[best]
        pairs = [a / b for a, b in zip(subject.values, against.values, strict=True)]
        of_medians = subject.median / against.median
        ratios.append(Ratio(comparison, best, of_medians, statistics.median(pairs), min(pairs), max(pairs)))
    return ratios
