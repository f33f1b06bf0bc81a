"""What algorithms reach with their tuned settings, over seeds: ``python -m benchmarks.learning [--only REGEX]``.

Each row is ``weft train ALGORITHM ENVIRONMENT`` without a flag but the seed: in one program for all seeds where the
environment is in JAX, one run after the other where it is not. Prints a table beside what is published, with its
settings, and writes the curves as pictures (``--out``, one for each environment) and the figures as JSON beside them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.curves import Curve, curve, interquartile_mean, interval, picture
from benchmarks.table import grid
from benchmarks.weft_command import records, run
from benchmarks.worker import ROOT

LIMIT_SECONDS = 3_600.0


@dataclass(frozen=True)
class Row:
    """One algorithm in one environment."""

    algorithm: str
    environment: str
    published: str = ""  # with where, and after how many steps

    @property
    def name(self) -> str:
        """As it is selected."""
        return f"{self.algorithm} {self.environment}"

    @property
    def together(self) -> bool:
        """Whether all seeds are one program."""
        return self.environment.startswith("weft:")


ROWS = (
    Row("ppo", "CartPole-v1", "490 ± 6 (CleanRL, 500,000)"),
    Row("dqn", "CartPole-v1", "498 ± 2 (CleanRL, 500,000)"),
    Row("ppo", "Acrobot-v1", "-86 ± 1 (CleanRL, 500,000)"),
    Row("sac", "Pendulum-v1"),
    Row("ppo", "weft:CartPole-v1"),
    Row("a2c", "weft:CartPole-v1"),
    Row("impala", "weft:CartPole-v1"),
    Row("dqn", "weft:CartPole-v1"),
    Row("pqn", "weft:CartPole-v1"),
    Row("ppo", "weft:Pendulum-v1"),
    Row("sac", "weft:Pendulum-v1"),
    Row("td3", "weft:Pendulum-v1"),
    Row("ppo", "weft:Memory-v0"),
    Row("r2d2", "weft:Memory-v0"),
)


@dataclass
class Learned:
    """What a row came to."""

    row: Row
    steps: int  # of a seed
    returns: list[float]  # of the last episodes of training, by seed
    curve: Curve
    seconds: float


def learn(row: Row, seeds: Sequence[int]) -> Learned:
    """Train; blocks. Raises NotRun where a run fails."""
    with tempfile.TemporaryDirectory() as root:
        if row.together:
            summary, told = _train(row, ["--seed", str(seeds[0]), "--seeds", str(len(seeds))], Path(root) / "all")
            paths = [
                [
                    (r["env_steps"] / len(seeds), r[f"return_mean/{k}"])
                    for r in told
                    if r.get(f"return_mean/{k}") is not None
                ]
                for k in range(len(seeds))
            ]
            returns = [float(each["return_mean"]) for each in summary["seeds"]]
            return Learned(row, summary["env_steps"] // len(seeds), returns, curve(paths), summary["wall_seconds"])
        runs = [_train(row, ["--seed", str(seed)], Path(root) / str(seed)) for seed in seeds]
        paths = [
            [(r["env_steps"], r["return_mean"]) for r in told if r.get("return_mean") is not None] for _, told in runs
        ]
        returns = [float(summary["return_mean"]) for summary, _ in runs]
        seconds = sum(float(summary["wall_seconds"]) for summary, _ in runs)
        return Learned(row, runs[0][0]["env_steps"], returns, curve(paths), seconds)


def _train(row: Row, flags: Sequence[str], folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    folder.mkdir()
    summary = run(row.environment, flags, folder, LIMIT_SECONDS, algorithm=row.algorithm)
    return summary, records(folder)


def table(found: Sequence[Learned]) -> str:
    """What was reached, beside what is published."""
    header = ["algorithm", "environment", "steps", "return, by seed", "IQM (95%)", "published", "s"]
    rows = []
    for each in found:
        values = np.array(each.returns)
        low, high = interval(values)
        rows.append(
            [
                each.row.algorithm,
                f"`{each.row.environment}`",
                f"{each.steps:,}",
                ", ".join(f"{value:.4g}" for value in each.returns),
                f"{float(interquartile_mean(values)):.4g} ({float(low):.4g} to {float(high):.4g})",
                each.row.published,
                f"{each.seconds:.0f}",
            ]
        )
    return grid(header, rows)


def write(found: Sequence[Learned], out: Path) -> list[Path]:
    """The pictures, one for each environment, and ``learning.json``."""
    out.mkdir(parents=True, exist_ok=True)
    by_environment: dict[str, dict[str, Curve]] = defaultdict(dict)
    for each in found:
        by_environment[each.row.environment][each.row.algorithm] = each.curve
    paths = []
    for environment, curves in by_environment.items():
        path = out / f"learning-{re.sub(r'[^A-Za-z0-9]+', '-', environment)}.svg"
        path.write_text(picture(environment, curves), encoding="utf-8")
        paths.append(path)
    figures = [{"row": e.row.name, "steps": e.steps, "returns": e.returns, "seconds": e.seconds} for e in found]
    paths.append(out / "learning.json")
    paths[-1].write_text(
        json.dumps({"machine": machine.describe(), "rows": figures}, indent=1) + "\n", encoding="utf-8"
    )
    return paths


def main(arguments: list[str]) -> int:
    """Train, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", default="", help="a regular expression that rows such as 'ppo CartPole-v1' must match"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    flags = parser.parse_args(arguments)
    rows = [row for row in ROWS if re.search(flags.only, row.name)]
    if not rows:
        parser.error(f"no row matches {flags.only!r}; there are: {', '.join(row.name for row in ROWS)}")
    seeds = range(flags.first_seed, flags.first_seed + flags.seeds)
    found = []
    for row in rows:
        found.append(learn(row, seeds))
        print(table(found[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(found))
    print("\n".join(f"wrote {path}" for path in write(found, flags.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
