"""The headline of docs/chaos.md: ``python -m benchmarks.chaos [--seconds 1800] [--every 15] [--plans PLAN …]``.

For each plan one training without faults, and one in which a worker drawn at random is killed every 15 s. Prints the
verdict of each: throughput as a share of fault-free, the ledger, recoveries by role, leaks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from weft.chaos.schedule import kinds_of, schedule
from weft.chaos.storm import storm

PLANS = ("env*2 | act | learn", "(env+act)*2 | learn")
RUN = ["ppo", "CartPole-v1", "--vector", "each", "--envs", "64", "--algo.unroll", "32"]


def main(arguments: list[str]) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long each run learns (1800)")
    parser.add_argument("--calm", type=float, help="how long the one without faults learns (as --seconds)")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults, on average (15)")
    parser.add_argument("--faults", default="kill", help="as weft chaos has them (kill)")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule (0)")
    parser.add_argument("--plans", nargs="+", default=list(PLANS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there too")
    flags = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    verdicts = {}
    for plan in flags.plans:
        faults = schedule(kinds_of(flags.faults), flags.every, flags.seconds, flags.seed)
        with tempfile.TemporaryDirectory() as root:
            verdict = storm(
                [*RUN, "--plan", plan, "--checkpoint-seconds", "5"],
                faults,
                flags.seconds,
                Path(root),
                calm_seconds=flags.calm,
                tell=lambda text: print(text, file=sys.stderr, flush=True),
            )
        verdicts[plan] = verdict.to_json()
        print(f"\n{plan}: {flags.seconds:.0f} s, {len(faults)} faults\n{verdict.table()}", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(verdicts, indent=1))
    return 0 if all(verdict["survived"] for verdict in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
