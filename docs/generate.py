"""Writes docs/conformance.md: every algorithm by every named plan by every kind of environment, tried.

python docs/generate.py

The cells are those of tests/conformance/test_matrix.py. A plan that runs is run, and must learn what ``inline`` learns
from the same seed; one that does not is asked for its reason.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
PAGE = HERE / "conformance.md"

INTRODUCTION = """# Conformance

Every algorithm by every named plan by every kind of environment. A cell *runs*: the plan learned, from the same seed,
the params that `inline` learned (within {tolerance:g} after {steps} learn calls; what differs is the order of sums over
replicas). Or it is *refused*, before anything starts, with the reason given below.

This page is generated: `python docs/generate.py`. The tests in `tests/conformance/` hold it."""


def page(runs: Callable[[str, str, str], bool]) -> str:
    """The page's text; ``runs(algorithm, plan, environment)`` says whether a plan that should run learned as it must.

    Plans that do not run are asked for their reason here. ``tests`` and ``tests/conformance`` are on the path.
    """
    import test_matrix as matrix

    from weft.core.errors import PlanError

    columns = list(product(matrix.ALGORITHMS, matrix.ENVIRONMENTS))
    rows, reasons = [], {}
    for plan in matrix.PLANS:
        cells = []
        for algorithm, environment in columns:
            if plan in matrix.RUNS:
                cells.append("runs" if runs(algorithm, plan, environment) else "DIFFERS")
                continue
            try:
                matrix.prepare_cell(algorithm, plan, environment)
            except PlanError as error:
                reasons[plan] = reason(plan, str(error))
                cells.append("refused")
        rows.append(f"| `{plan}` | {' | '.join(cells)} |")
    head = f"| plan | {' | '.join(f'{a}, {e}' for a, e in columns)} |"
    table = [head, "|---" * (len(columns) + 1) + "|", *rows]
    introduction = INTRODUCTION.format(tolerance=matrix.TOLERANCE, steps=matrix.LEARN_STEPS)
    why = [f"- `{plan}`: {text}" for plan, text in reasons.items()]
    return "\n".join([introduction, "", *table, "", "## Reasons", "", *why]) + "\n"


def reason(plan: str, message: str) -> str:
    """A refusal without the counts that this machine filled in: the plan by its name."""
    return re.sub(r"^plan '[^']*'", f"plan '{plan}'", message)


def measured(algorithm: str, plan: str, environment: str) -> bool:
    """Run a cell, and compare it with ``inline``."""
    import test_matrix as matrix
    from toys import farthest

    print(f"{algorithm}, {plan}, {environment}", file=sys.stderr)
    params, _ = matrix.learned(algorithm, plan, environment)
    inline, _ = matrix.learned(algorithm, "inline", environment)
    return bool(farthest(params, inline) < matrix.TOLERANCE)


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # as the tests have it
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path[:0] = [str(TESTS), str(TESTS / "conformance")]
    PAGE.write_text(page(measured))
