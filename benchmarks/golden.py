"""The golden record: two checkouts train the same runs on this machine, and must end with the same bits.

``python -m benchmarks.golden --old DIR [--new DIR] [--only WORDS]``. Each training is a ``weft train`` of its own
checkout, in a process of its own, one at a time. Bits depend on the processor, so that nothing is stored: what is
compared are two summaries of the same machine. Exits with 1 where a run differs or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import checkouts
from benchmarks.golden_runs import RUNS, GoldenRun
from benchmarks.table import grid
from benchmarks.weft_command import NotRun, run

FIELDS = ("exit", "env_steps", "learn_steps", "samples", "episodes", "return_mean", "params_sha256", "seeds")
"""Of a summary; ``seeds`` is there only where a run has several."""
LIMIT_SECONDS = 300.0
Summary = dict[str, Any]


class Verdict(NamedTuple):
    """How a run compares: ``same``, ``different`` or ``failed``, and why."""

    title: str
    outcome: str
    reasons: tuple[str, ...] = ()


def trained(wanted: GoldenRun, checkout: Path, scratch: Path) -> list[Summary]:
    """The summary of each training of a run. One that fails is the last, and its ``exit`` says why."""
    summaries = []
    settings = {
        **wanted.variables,
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "JAX_COMPILATION_CACHE_DIR": str(scratch / "programs"),
    }
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):  # else every process would compile every module
        settings |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for steps in wanted.stops:
            algorithm, (environment, *flags) = wanted.command(steps)
            how: dict[str, Any] = {"algorithm": algorithm, "checkout": checkout, "settings": settings}
            try:
                summaries.append(run(environment, flags, Path(folder), LIMIT_SECONDS, **how))
            except NotRun as error:
                return [*summaries, {"exit": str(error)}]
    return summaries


def compared(title: str, old: Sequence[Summary], new: Sequence[Summary]) -> Verdict:
    """Whether two checkouts' summaries of the same trainings are the same, field by field."""
    failures = [
        f"{side}: {summary.get('exit')}"
        for side, summaries in (("old", old), ("new", new))
        for summary in summaries
        if summary.get("exit") != "finished"
    ]
    if failures:
        return Verdict(title, "failed", tuple(failures))
    reasons = []
    for number, (before, after) in enumerate(zip(old, new, strict=True), 1):
        part = f"training {number}: " if len(old) > 1 else ""
        for name in FIELDS:
            texts = [json.dumps(summary.get(name), sort_keys=True) for summary in (before, after)]
            if texts[0] != texts[1]:
                reasons.append(f"{part}{name} {' → '.join(map(_short, texts))}")
    return Verdict(title, "different" if reasons else "same", tuple(reasons))


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def table(verdicts: Sequence[Verdict]) -> str:
    """One row for each run."""
    rows = [[verdict.title, verdict.outcome, "; ".join(verdict.reasons)] for verdict in verdicts]
    return grid(["run", "outcome", "what differs"], rows)


def chosen(words: str | None) -> list[GoldenRun]:
    """The runs whose titles have all of ``words``; all runs without any."""
    return [wanted for wanted in RUNS if all(word in wanted.title.split() for word in (words or "").split())]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__.splitlines()[0])
    checkouts.add_flags(parser)
    parser.add_argument("--only", metavar="WORDS", help="runs whose titles have all of these words: 'gru tcp'")
    flags = parser.parse_args(arguments)
    wanted = chosen(flags.only)
    if not wanted:
        parser.error(f"no run has all of the words {flags.only!r}; the runs: {'; '.join(r.title for r in RUNS)}")
    verdicts = []
    began = time.monotonic()
    try:
        with checkouts.opened(flags) as sides, tempfile.TemporaryDirectory(prefix="weft-golden-") as scratch:
            for number, this in enumerate(wanted, 1):
                old, new = (trained(this, side, Path(scratch)) for side in sides)
                verdicts.append(compared(this.title, old, new))
                line = f"{number}/{len(wanted)}  {time.monotonic() - began:.0f} s  {this.title}: {verdicts[-1].outcome}"
                print(line, *verdicts[-1].reasons, sep="\n    ", file=sys.stderr, flush=True)
    except checkouts.NoCheckout as error:
        parser.error(str(error))
    print(table(verdicts))
    count = sum(verdict.outcome == "same" for verdict in verdicts)
    print(f"\n{count} of {len(verdicts)} runs are the same, in {time.monotonic() - began:.0f} s.")
    return 0 if count == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
