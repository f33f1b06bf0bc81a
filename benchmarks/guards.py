"""What guards and bookkeeping cost: ``python -m benchmarks.guards [--rounds 9]``.

``weft train`` with its defaults, and with everything off that can be: environments are not caught when they raise,
their observations are not compared with their Box, nobody watches for hangs, nothing is saved. The two take turns.
Counters, the ledger and the check for numbers that are not finite cannot be turned off, and are in both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.weft_command import Measured

OFF = ("--env-errors", "fail", "--env-bounds", "ignore", "--hang-seconds", "100000", "--checkpoint-seconds", "100000")
CASES = {"inline": (8, 128), "(env+act)*2 | learn": (64, 32)}


def main(arguments: list[str]) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guards", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="pairs of runs of each case (9)")
    parser.add_argument("--seconds", type=float, default=5.0, help="that a run learns (5)")
    flags = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    for plan, (envs, unroll) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            on, off = (
                Measured("CartPole-v1", plan, envs, unroll, flags.seconds, Path(folder), how) for how in ((), OFF)
            )
            on.prepare(30_000)
            off.steps = on.steps
            ratios = []
            for k in range(flags.rounds):
                pair = [(side, side()) for side in ((on, off) if k % 2 else (off, on))]
                rates = {side is on: rate for side, rate in pair}
                ratios.append(rates[True] / rates[False])
            spread = f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{plan}, {envs} x {unroll}: with guards / without {spread}, {flags.rounds} pairs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
