"""What algorithms reach with their tuned settings, over seeds: ``python -m benchmarks.learning [--only REGEX]``.

Each row is ``weft train ALGORITHM ENVIRONMENT`` without a flag but the seed, and the steps where a published figure has
its own: in one program for all seeds where the environment is in JAX or ``--together`` says so, else in a process for
each seed. Prints a table beside what is published and writes the curves as pictures (``--out``, one for each
environment) and the figures as JSON beside them. A second call in the same folder trains only what is missing.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.curves import Curve, curve, interquartile_mean, interval, picture
from benchmarks.learning_rows import ROWS, Row
from benchmarks.learning_runs import ON_CPU, ONE_THREAD, RESULTS, SHARED_DEVICE, Found, load, tasks, train
from benchmarks.table import grid
from benchmarks.worker import ROOT

LIMIT_SECONDS = 7_200.0


@dataclass
class Learned:
    """What a row came to: its seeds in order."""

    row: Row
    seeds: list[Found]

    @property
    def steps(self) -> str:
        """Of a seed; where not all of them made all, of how many."""
        made, asked = min(found.steps for found in self.seeds), max(found.asked for found in self.seeds)
        return f"{made:,}" if made >= asked else f"{made:,} of {asked:,}"

    @property
    def curve(self) -> Curve:
        """Over the seeds."""
        return curve([found.path for found in self.seeds])


def collected(rows: Sequence[Row], known: Sequence[Found]) -> list[Learned]:
    """What is known of each row, without those of which nothing is."""
    by_row: dict[str, list[Found]] = defaultdict(list)
    for found in known:
        by_row[found.row].append(found)
    return [Learned(row, by_row[row.name]) for row in rows if row.name in by_row]


def table(learned: Sequence[Learned]) -> str:
    """What was reached, beside what is published."""
    header = ["algorithm", "environment", "steps", "return, by seed", "IQM (95%)", "mean ± deviation", "published", "s"]
    rows = []
    for each in learned:
        values = np.array([found.result for found in each.seeds])
        low, high = interval(values)
        rows.append(
            [
                each.row.algorithm,
                f"`{each.row.environment}`",
                each.steps,
                ", ".join(f"{value:.4g}" for value in values),
                f"{float(interquartile_mean(values)):.4g} ({float(low):.4g} to {float(high):.4g})",
                f"{values.mean():.4g} ± {values.std():.2g}",
                each.row.published,
                f"{max(found.seconds for found in each.seeds):.0f}",
            ]
        )
    return grid(header, rows)


def write(learned: Sequence[Learned], out: Path) -> list[Path]:
    """The pictures, one for each environment, and ``learning.json``."""
    out.mkdir(parents=True, exist_ok=True)
    by_environment: dict[str, dict[str, Curve]] = defaultdict(dict)
    for each in learned:
        by_environment[each.row.environment][each.row.algorithm] = each.curve
    paths = []
    for environment, curves in by_environment.items():
        path = out / f"learning-{re.sub(r'[^A-Za-z0-9]+', '-', environment)}.svg"
        path.write_text(picture(environment, curves), encoding="utf-8")
        paths.append(path)
    figures = [
        {
            "row": each.row.name,
            "steps": min(found.steps for found in each.seeds),
            "asked": max(found.asked for found in each.seeds),
            "seeds": [found.seed for found in each.seeds],
            "returns": [found.result for found in each.seeds],
            "seconds": [found.seconds for found in each.seeds],
            "settings": each.seeds[0].settings,
            "published": each.row.published,
        }
        for each in learned
    ]
    paths.append(out / "learning.json")
    paths[-1].write_text(
        json.dumps({"machine": machine.describe(), "rows": figures}, indent=1) + "\n", encoding="utf-8"
    )
    return paths


def main(arguments: list[str]) -> int:
    """Train, print, write; 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", default="", help="a regular expression that rows such as 'ppo CartPole-v1' must match"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="of every seed; unless given, the row's own")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side; above 1 each has one thread")
    parser.add_argument("--together", action="store_true", help="seeds of a row in one program in any environment")
    parser.add_argument("--flags", default="", help="more flags of weft train, for every row, in one string")
    parser.add_argument("--device", choices=["cpu", "any"], default="any", help="any: JAX's first, shared by the jobs")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="after which runs are stopped, and kept")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "learning", help="results, pictures, runs")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help=f"other folders, or files {RESULTS}, to tell")
    parser.add_argument("--report", action="store_true", help="train nothing; tell what is there")
    flags = parser.parse_args(arguments)
    rows = [row for row in ROWS if re.search(flags.only, row.name)]
    if not rows:
        parser.error(f"no row matches {flags.only!r}; there are: {', '.join(row.name for row in ROWS)}")
    if missing := [str(path) for path in flags.merge if not path.exists()]:
        parser.error(f"--merge: there is no {missing[0]}")
    here = [flags.out] if (flags.out / RESULTS).exists() else []
    failed = 0
    if not flags.report:
        seeds = range(flags.first_seed, flags.first_seed + flags.seeds)
        settings = (ONE_THREAD if flags.jobs > 1 and flags.device == "cpu" else {}) | SHARED_DEVICE
        settings |= ON_CPU if flags.device == "cpu" else {}
        todo = tasks(rows, seeds, flags.steps, load([*here, *flags.merge]), flags.together, shlex.split(flags.flags))
        for task, came in train(todo, flags.out, flags.jobs, flags.seconds, settings):
            if isinstance(came, list):
                print(table([Learned(task.row, came)]).splitlines()[-1], flush=True)
            else:
                failed += 1
                print(f"{task.run}: {came}", flush=True)
        here = [flags.out] if (flags.out / RESULTS).exists() else []
    learned = collected(rows, load([*here, *flags.merge]))
    if learned:
        print("\n" + table(learned))
        print("\n".join(f"wrote {path}" for path in write(learned, flags.out)))
    else:
        print("nothing was found")
    return 1 if failed or not learned else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
