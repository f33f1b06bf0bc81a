"""The same plan on several hosts of this machine: its rate against the local runtime's.

``python -m benchmarks.cluster [--rounds N] [--seconds S] [--on processes:3 ray]`` measures in turn, each time in a run
of its own; start-up and compilation are outside it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import machine
from benchmarks.weft_command import NotRun, records, run, steady_rate

PLAN = "env*4 | act*2 | learn"
ENVS, UNROLL = 64, 32


def rate_of(on: str, steps: int) -> float:
    """Env steps per second of one run."""
    folder = Path(tempfile.mkdtemp())
    asked = ["--plan", PLAN, "--on", on, "--envs", str(ENVS), "--steps", str(steps), "--seed", "1"]
    asked += ["--algo.unroll", str(UNROLL), "--algo.epochs", "1", "--algo.minibatches", "1"]
    try:
        run("CartPole-v1", asked, folder, 300.0)
        return steady_rate(records(folder), ENVS * UNROLL) or float("nan")
    except NotRun as error:
        print(error)
        return float("nan")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rates(flags: argparse.Namespace) -> None:
    """Measure in turn, print a table."""
    found: dict[str, list[float]] = {}
    for _ in range(flags.rounds):
        for on in ("local", *flags.on):
            found.setdefault(on, []).append(rate_of(on, round(flags.seconds * 15_000)))
    for on, measured in found.items():
        shares = [rate / local for rate, local in zip(measured, found["local"], strict=True)]
        spread = f"{min(shares):.2f} – {max(shares):.2f}"
        print(f"{PLAN}  {on:14} {median(measured):10,.0f} env steps/s   {median(shares):.2f} of local ({spread})")


def main(arguments: list[str]) -> int:
    """Rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--on", nargs="+", default=["processes:3"])
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    rates(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
