"""A population that was trained: its members, how well each did, and which is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.populations.lineage import Lineage
from weft.populations.space import Values
from weft.runtimes.policies.run import Run


@dataclass(frozen=True)
class Trained:
    """One member of a population, as it ended."""

    index: int
    values: Values  # by field
    return_mean: float  # over its last 100 episodes; NaN where it has none, or has diverged
    env_steps: int
    exit: str  # finished, interrupted, stopped (by halving or Optuna), failed, or waiting: it never began
    folder: Path  # of a run like any other


@dataclass(frozen=True, repr=False)
class Population:
    """What ``weft.sweep`` and ``weft.pbt`` return."""

    folder: Path
    summary: dict[str, Any]
    lineage: Lineage

    @property
    def members(self) -> list[Trained]:
        """The members in their order."""
        return [_trained(self.folder, row) for row in self.summary["members"]]

    @property
    def best(self) -> Trained:
        """The member of the highest return, of those that were not stopped; the first where none has one."""
        return self.members[int(self.summary["best"])]

    @property
    def returns(self) -> list[float]:
        """The members' returns, in their order."""
        return [member.return_mean for member in self.members]

    def load(self, member: int | None = None, **how: Any) -> Run:
        """A member as a run, the best unless given: its params and its policy. ``how`` is ``weft.load``'s."""
        from weft.api import load

        return load((self.best if member is None else self.members[member]).folder, **how)

    def __repr__(self) -> str:
        """One line: the folder, how many, the best."""
        best = self.best
        values = ", ".join(f"{name}={value:g}" for name, value in best.values.items() if isinstance(value, int | float))
        told = f"member {best.index} with return {best.return_mean:.1f} ({values})"
        return f"Population({str(self.folder)!r}: {len(self.members)} members, the best {told})"


def _trained(folder: Path, row: Mapping[str, Any]) -> Trained:
    mean = row["return_mean"]
    return Trained(
        row["member"],
        dict(row["values"]),
        math.nan if mean is None else float(mean),
        row["env_steps"],
        row["exit"],
        folder / row["run"],
    )
