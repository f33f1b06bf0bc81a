"""CartPole-v1 made one by one, 64 environments × 128 steps, 4 epochs × 4 minibatches: one process against workers.

``python -m benchmarks.lockstep [--rounds N] [--seconds S]``. In lockstep every plan is strictly on-policy and gives the
same result; the plan with ``max_lag`` 1 is beside it. Each measurement is a run of its own, in turn; start-up and
compilation are outside it. The limit is what one core reaches by stepping alone, without a policy.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import machine
from benchmarks.scaling import stepping
from benchmarks.weft_command import NotRun, records, run, steady_rate

PLANS = {
    "env+act+learn": ["--lockstep"],
    "(env+act)*2 | learn": ["--lockstep"],
    "(env+act) | learn": ["--max-lag", "1"],
}
ENVS = 64
UNROLL = 128


def measure(plan: str, flags: list[str], steps: int) -> float:
    """Env steps per second of one run."""
    folder = Path(tempfile.mkdtemp())
    asked = ["--plan", plan, *flags, "--envs", str(ENVS), "--vector", "each", "--steps", str(steps), "--seed", "1"]
    asked += ["--algo.unroll", str(UNROLL), "--algo.epochs", "4", "--algo.minibatches", "4"]
    try:
        run("CartPole-v1", asked, folder, 300.0)
        return steady_rate(records(folder), ENVS * UNROLL) or float("nan")
    except NotRun as error:
        print(error)
        return float("nan")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Measure in turn, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lockstep", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    found: dict[str, list[float]] = {"stepping alone, one core": []}
    for _ in range(flags.rounds):
        found["stepping alone, one core"].append(stepping("CartPole-v1", ENVS, 1, 2.0))
        for plan, how in PLANS.items():
            rate = measure(plan, how, round(flags.seconds * 90_000))
            found.setdefault(f"{plan}  {' '.join(how)}", []).append(rate)
    limit = found["stepping alone, one core"]
    for what, rates in found.items():
        shares = [rate / alone for rate, alone in zip(rates, limit, strict=True)]
        print(
            f"{what:<45} {median(rates):>9,.0f} ({min(rates):,.0f} – {max(rates):,.0f})  "
            f"{median(shares):.2f} of stepping alone ({min(shares):.2f} – {max(shares):.2f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
