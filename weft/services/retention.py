"""Which checkpoints of a run stay: the newest, the best, and one every so many env steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft.services.checkpoint_file import Label

FULL_WINDOW = 100
"""Episodes that a mean return must be over before it counts as much as others: one lucky episode is not the best."""


class Candidate(NamedTuple):
    """A checkpoint as retention sees it."""

    step: int  # learn steps
    label: Label


@dataclass(frozen=True)
class Retention:
    """How many of the ``newest`` stay (at least 1), how many of the ``best``, and one ``every`` so many env steps.

    0 turns off ``best`` and ``every``. Of each stretch of ``every`` env steps, but the first, the earliest stays.
    """

    newest: int = 3
    best: int = 0
    every: int = 0

    def stay(self, found: Iterable[Candidate]) -> set[int]:
        """The steps of those that stay."""
        by_step = sorted(found, key=lambda c: c.step)
        kept = {c.step for c in by_step[-max(self.newest, 1) :]}
        kept |= {c.step for c in best_first(by_step)[: self.best]}
        return kept | set(self.stretches(by_step).values())

    def stretches(self, found: Iterable[Candidate]) -> dict[int, int]:
        """The steps of those that stay for a stretch of ``every``, by the env steps at which it begins."""
        first: dict[int, int] = {}
        for candidate in sorted(found, key=lambda c: c.step) if self.every else ():
            first.setdefault(candidate.label.env_steps // self.every, candidate.step)
        return {stretch * self.every: step for stretch, step in first.items() if stretch}


def best_first(found: Iterable[Candidate]) -> Sequence[Candidate]:
    """Those that tell a mean return, the highest first; of equal ones the later.

    Means over fewer than FULL_WINDOW episodes come after all others.
    """
    told = [c for c in found if c.label.return_mean is not None]
    return sorted(told, key=lambda c: (c.label.episodes >= FULL_WINDOW, c.label.return_mean, c.step), reverse=True)
