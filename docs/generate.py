"""Writes docs/conformance.md: every algorithm by every named plan by every kind of environment and channel, tried.

python docs/generate.py              all cells: a quarter of an hour on two cores
python docs/generate.py a2c srl tcp  only cells of these algorithms, plans, environments or channels; the rest stays
python docs/generate.py --rest       only cells that were not tried, or were bad

The cells are those of tests/conformance/cells.py. A plan that runs is run, and must learn what one process learns from
the same seed; one that does not is asked for its reason. The page is written after each cell.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeAlias

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
PAGE = HERE / "conformance.md"

Cell: TypeAlias = tuple[str, str, str, str]
"""Algorithm, plan, environment, channel."""

INTRODUCTION = """# Conformance

Every algorithm by every named plan, by every kind of environment (in JAX: `weft:CartPole-v1`; on the host:
`CartPole-v1`; Pendulum where actions must be continuous; for groups of agents `weft:Spread-v0` and PettingZoo's
`simple_spread_v3`) and of channel, in lockstep. A cell is *equal* where {steps} updates gave, from the same seed, the
params of one process with as many learners, bit for bit; it *runs* where they are within {tolerance:g} of them: there
act or learn work on batches of other shapes, and XLA takes their sums in another order. Which of the two it is may
depend on the CPU, for which XLA joins products and sums. Or it is *refused*, before anything starts, with the reason
given below. Plans have two of whatever they replicate, each in a process of its own; `inline` has none, so that
channels do not matter to it. A replay is beside learn, `(env+act)*2 | replay+learn`, but in `apex`.

This page is generated: `python docs/generate.py`. The tests in `tests/conformance/` try some of its cells each time.
What the same cells reach without lockstep is in [asynchronous.md](asynchronous.md)."""

UNTRIED = "not tried"
LEFT_OUT: tuple[str, ...] = ()


def cells(left_out: Sequence[str] = ()) -> list[Cell]:
    """All of them, but for algorithms that a page leaves out. ``tests`` and ``tests/conformance`` are on the path."""
    import cells as matrix

    algorithms = [name for name in matrix.ALGORITHMS if name not in left_out]
    return list(product(algorithms, matrix.PLANS, matrix.ENVIRONMENTS, matrix.CHANNELS))


def page(outcomes: Mapping[Cell, str]) -> str:
    """The page's text; plans that are refused are asked for their reason here."""
    import cells as matrix

    rows, reasons = table(outcomes)
    introduction = INTRODUCTION.format(tolerance=matrix.TOLERANCE, steps=matrix.LEARN_STEPS)
    why = [f"- {_whom(whom, len(matrix.ALGORITHMS))}: {text}" for text, whom in reasons.items()]
    expressions = [f"- `{name}`: `{text}`" for name, text in matrix.COUNTED.items()]
    parts = ["", *rows, "", "## As they were run", "", *expressions, "", "## Reasons", "", *why]
    return "\n".join([introduction, *parts]) + "\n"


def table(
    outcomes: Mapping[Cell, str], left_out: Sequence[str] = ()
) -> tuple[list[str], dict[str, list[tuple[str, str]]]]:
    """The lines of the table, and who is refused for which reason."""
    import cells as matrix

    columns = list(product(matrix.ENVIRONMENTS, matrix.CHANNELS))
    rows: list[str] = []
    reasons: dict[str, list[tuple[str, str]]] = {}
    for algorithm, plan in product([a for a in matrix.ALGORITHMS if a not in left_out], matrix.PLANS):
        refusal = refused(algorithm, plan)
        if refusal is not None:
            reasons.setdefault(refusal, []).append((algorithm, plan))
        found = [outcomes.get((algorithm, plan, *column), UNTRIED) for column in columns]
        told = ["refused" if refusal else UNTRIED if outcome == "refused" else outcome for outcome in found]
        rows.append(f"| {algorithm} | `{plan}` | {' | '.join(told)} |")
    head = f"| algorithm | plan | {' | '.join(f'{e}, {c}' for e, c in columns)} |"
    return [head, "|---" * (len(columns) + 2) + "|", *rows], reasons


def read(text: str) -> dict[Cell, str]:
    """The outcomes that a page tells."""
    lines = [[part.strip() for part in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]
    if len(lines) < 2 or lines[0][:2] != ["algorithm", "plan"]:
        return {}
    columns = [tuple(name.split(", ")) for name in lines[0][2:]]
    return {
        (row[0], row[1].strip("`"), *column): outcome
        for row in lines[2:]
        for column, outcome in zip(columns, row[2:], strict=True)
    }


def refused(algorithm: str, plan: str) -> str | None:
    """Why a plan is refused, without the counts that this machine filled in; None where it is not."""
    import cells as matrix

    from weft.core.errors import PlanError

    try:
        matrix.prepare_cell(algorithm, plan, "gymnasium")
    except PlanError as error:
        return re.sub(r"^plan '[^']*'", f"plan '{plan}'", str(error))
    return None


def _whom(whom: list[tuple[str, str]], algorithms: int) -> str:
    (plan,) = {plan for _, plan in whom}
    names = "" if len(whom) == algorithms else f" for {' and '.join(algorithm for algorithm, _ in whom)}"
    return f"`{plan}`{names}"


def tried(cell: Cell) -> str:
    """Run a cell, and compare it with one process."""
    import cells as matrix

    distance = matrix.distance(*cell)
    return "equal" if distance == 0.0 else "runs" if distance < matrix.TOLERANCE else f"DIFFERS by {distance:.1e}"


def good(outcome: str) -> bool:
    """Whether a cell's outcome is as it should be."""
    return outcome in ("equal", "runs")


def main(only: list[str], say: Callable[[str], object], of: ModuleType) -> int:
    """Try all cells, or ``only`` those that have one of these words for each kind of word given. The exit code.

    ``of`` has the page: PAGE, where it is; ``page``, its text; LEFT_OUT, who is not on it; ``tried``, the outcome of a
    cell; and ``good``.
    """
    there = cells(of.LEFT_OUT)
    kinds = [{word for word in only if word in {cell[k] for cell in there}} for k in range(4)]
    outcomes = read(of.PAGE.read_text()) if only and of.PAGE.exists() else {}
    done = {cell for cell, outcome in outcomes.items() if "--rest" in only and of.good(outcome)}
    bad = 0
    for cell in there:
        if cell in done or any(kind and cell[k] not in kind for k, kind in enumerate(kinds)) or refused(*cell[:2]):
            continue
        try:
            outcomes[cell] = of.tried(cell)
        except Exception as error:
            outcomes[cell] = f"FAILED: {type(error).__name__}"
            say(str(error))
        bad += not of.good(outcomes[cell])
        say(f"{', '.join(cell)}: {outcomes[cell]}")
        of.PAGE.write_text(of.page(outcomes))
    of.PAGE.write_text(of.page(outcomes))
    return 1 if bad else 0


def begin(of: ModuleType) -> NoReturn:
    """Try what the command line asks for, and exit."""
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # as the tests have it
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parent / ".jax_cache"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    sys.path[:0] = [str(TESTS), str(TESTS / "conformance")]
    sys.exit(main(sys.argv[1:], lambda text: print(text, file=sys.stderr, flush=True), of))


if __name__ == "__main__":
    begin(sys.modules[__name__])
