"""The error that a run ends with when its numbers stop being finite: what it was, and what is left."""

from __future__ import annotations

import math
from pathlib import Path

from weft.core.errors import EnvironmentFault, LearningDiverged, WeftError
from weft.runtimes.loop.bad_steps import IN_A_ROW
from weft.runtimes.loop.engine import Report
from weft.runtimes.prepare.config import Prepared


def diverged(prepared: Prepared, run: str, report: Report, learn_steps: int, saved_steps: int) -> WeftError:
    """``learn_steps`` the run has made, the report's too; ``saved_steps`` are in its newest checkpoint."""
    where = f"{run}, learn steps {learn_steps - report.learn_steps + 1} to {learn_steps}"
    bad = [name for name, values in report.metrics.items() if not all(map(math.isfinite, values.reshape(-1)))]
    good = ": the last checkpoint is good." if saved_steps else ". There is no checkpoint yet."
    kept = f"Nothing of it was saved{good}"
    if report.rewards_finite:
        bad = bad or ["the params"]
        cause = ""
        if prepared.source.pure is not None:
            cause = (
                f" If that does not help, check the observations of environment {prepared.source.name!r}: "
                "those of a JAX environment are not checked at each step, and one that is not a finite number ends "
                "like this too."
            )
        return LearningDiverged(
            f"{where}: {', '.join(bad)} stopped being finite. {kept} Try a smaller learning_rate, or "
            f"normalise_observations and normalise_rewards.{cause}"
        )
    return EnvironmentFault(
        f"{where}: environment {prepared.source.name!r} gave a reward that is not a finite number. {kept} "
        "Check the environment's step for a division by zero or an overflow."
    )


def refused_words(refused: int, report: Report, learn_steps: int, inspect: Path) -> str:
    """The warning for learn steps that were refused, while the run goes on."""
    where = f"learn steps {learn_steps - report.learn_steps + 1} to {learn_steps}"
    bad = [name for name, values in report.metrics.items() if not all(map(math.isfinite, values.reshape(-1)))]
    kept = f" What they were given is in {inspect}." if inspect.exists() else ""
    return (
        f"{where}: {', '.join(bad) or 'the params'} stopped being finite in {refused}, which changed nothing: params "
        f"and optimizer are those of before. {IN_A_ROW} in a row end the run.{kept}"
    )
