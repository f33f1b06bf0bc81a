"""The same plan on several hosts of this machine: its rate against the local runtime's.

``python -m benchmarks.cluster [--plans ...] [--rounds N] [--seconds S] [--on processes:3 ray]`` measures in turn, each
time in a run of its own; start-up and compilation are outside it.
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

PLANS = ["env*4 | act*2 | learn"]
ENVS, UNROLL = 64, 32
RATE = 90_000  # env steps that take about a second


def rate_of(plan: str, on: str, steps: int) -> float:
    """Env steps per second of one run."""
    folder = Path(tempfile.mkdtemp())
    asked = ["--plan", plan, "--on", on, "--envs", str(ENVS), "--steps", str(steps), "--seed", "1"]
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
    found: dict[tuple[str, str], list[float]] = {}
    where = ["local", *flags.on]
    for turn in range(flags.rounds):
        for plan in flags.plans:
            for on in where if turn % 2 == 0 else reversed(where):
                rate = rate_of(plan, on, round(flags.seconds * RATE))
                print(f"round {turn + 1}  {plan}  {on}: {rate:,.0f} env steps/s", file=sys.stderr, flush=True)
                found.setdefault((plan, on), []).append(rate)
    print("| plan | on | env steps/s | of local, of each round |\n|---|---|---|---|")
    for plan in flags.plans:
        for on in where:
            measured = found[plan, on]
            shares = [rate / local for rate, local in zip(measured, found[plan, "local"], strict=True)]
            rates_of = f"{median(measured):,.0f} ({min(measured):,.0f} – {max(measured):,.0f})"
            print(f"| `{plan}` | {on} | {rates_of} | {median(shares):.2f} ({min(shares):.2f} – {max(shares):.2f}) |")


def main(arguments: list[str]) -> int:
    """Rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--plans", nargs="+", default=PLANS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--on", nargs="+", default=["processes:3"])
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    rates(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
