"""Kills workers of a run at random, many times, and prints what became of it. By hand, for minutes:

python tests/faults/kill_workers.py [--kills 20] [--seconds 1.5] [KIND ...]

KIND is one of the names in CASES; all of them unless said. Each is one run, killed every so many seconds (from half to
one and a half times as long); then it is interrupted, and its ledger is checked. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from running import Training, missing

CASES = {  # what is killed: the algorithm and the plan
    "env": ("ppo", "env*2 | act | learn"),
    "act": ("ppo", "env*2 | act | learn"),
    "learn": ("ppo", "env*2 | act | learn"),
    "env+act": ("ppo", "(env+act)*2 | learn"),
    "act+learn": ("ppo", "env*2 | act+learn"),
    "env+act+grad": ("a2c", "(env+act+grad)*2 | apply"),
    "grad": ("a2c", "(env+act)*2 | grad*2 | apply"),
    "apply": ("a2c", "(env+act+grad)*2 | apply"),
    "learn*2": ("a2c", "env*2 | act | learn*2"),
    "(act+learn)*2": ("a2c", "env*2 | (act+learn)*2"),
    "(env+act+learn)*2": ("a2c", "(env+act+learn)*2"),
    "any": ("ppo", "env*2 | act | learn"),
}
ARGUMENTS = ["--envs", "8", "--seed", "1", "--steps", "1000000000", "--checkpoint-seconds", "1", "--algo.hidden", "16"]


SECONDS_TO_REPLACE = 5.0
"""What a worker that was killed has until another is there, on a machine that is not busy with other things."""


class Outcome(NamedTuple):
    """A row of the table."""

    kind: str
    kills: int
    restarts: int
    replaced: list[float]  # seconds from a kill to another process of that name
    learning: list[float]  # seconds from a kill to the next record
    missing: int  # samples
    produced: int
    lost: int  # dropped because somebody died
    left: list[str]
    code: int

    @property
    def good(self) -> bool:
        """Whether nothing is amiss."""
        soon = max(self.replaced) <= SECONDS_TO_REPLACE
        # Of several learners the others may be gone too before they are started again.
        return self.restarts >= self.kills and self.missing == 0 and not self.left and self.code == 130 and soon


def tried(kind: str, kills: int, seconds: float, root: Path) -> Outcome:
    """One run, and its kills."""
    algorithm, plan = CASES[kind]
    killed = kind.removesuffix("*2").strip("()")
    choose = random.Random(1)
    run = Training(root, algorithm, "CartPole-v1", "--plan", plan, *ARGUMENTS, run=killed)
    replaced, learning = [], []
    try:
        run.wait_for_learning(2)
        run.wait_for_checkpoint()
        for _ in range(kills):
            time.sleep(seconds * choose.uniform(0.5, 1.5))
            names = sorted(name for name in run.workers() if kind == "any" or name.rpartition("-")[0] == killed)
            name = choose.choice(names)
            pid = run.kill(name)
            began = time.monotonic()
            replaced.append(run.wait_for_another(name, pid))
            run.wait_for_learning(1)
            learning.append(time.monotonic() - began)
        code = run.end(signal.SIGINT)
        summary = run.summary
        samples = summary["samples"]
        lost = sum(count for why, count in samples["dropped"].items() if "died" in why)
        return Outcome(
            kind,
            kills,
            summary["restarts"],
            replaced,
            learning,
            missing(samples),
            samples["produced"],
            lost,
            run.left(),
            code,
        )
    finally:
        run.close()


def main() -> int:
    """Try all cases that were asked for; print a row of each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*CASES, []])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.5)
    asked = parser.parse_args()
    print("| killed | kills | restarts | s to replace, median (max) | s to learn again | missing | lost of produced |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for kind in asked.kinds or CASES:
        with tempfile.TemporaryDirectory() as root:
            try:
                row = tried(kind, asked.kills, asked.seconds, Path(root))
            except AssertionError as error:
                print(f"| {kind} | FAILED |", flush=True)
                print(error, file=sys.stderr, flush=True)
                good = False
                continue
        times = [f"{statistics.median(t):.2f} ({max(t):.2f})" for t in (row.replaced, row.learning)]
        print(
            f"| {kind} | {row.kills} | {row.restarts} | {times[0]} | {times[1]} | {row.missing} "
            f"| {row.lost:,} of {row.produced:,} |{'' if row.good else f' WRONG: {row.left} {row.code}'}",
            flush=True,
        )
        good &= row.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
