"""How long a run goes without a learn step while it goes over to other replicas, up and down in turn.

``python -m benchmarks.more_replicas [--on ON] [--repeats N]``: CartPole-v1, 8 environments, ``env*2 | act | learn`` to
``env*4`` and back. The seconds are those of ``weft scale --json``: from the last learn step before to the first after.
In the end the run is stopped, and its ledger looked at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.table import grid, number

COUNTS = ("env=4", "env=2")


def weft(*arguments: str) -> str:
    """What a command of Weft's prints; raises where it fails."""
    command = [sys.executable, "-m", "weft", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Scale, print."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--on", default="local")
    asked.add_argument("--repeats", type=int, default=5)
    given = asked.parse_args()
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    with tempfile.TemporaryDirectory() as folder:
        at = ["--root", folder]
        how = ["--plan", "env*2 | act | learn", "--envs", "8", "--steps", "1_000_000_000", "--on", given.on]
        weft("train", "ppo", "CartPole-v1", *how, "--run", "r", "--no-tensorboard", "--detach", *at)
        try:
            for _ in range(given.repeats):
                for count in COUNTS:
                    found[count].append(json.loads(weft("scale", "r", count, "--json", *at))["seconds"])
        finally:
            weft("stop", "r", *at)
        samples = json.loads(Path(folder, "r", "summary.json").read_text())["samples"]
    print(", ".join(f"{name} {what}" for name, what in machine.describe().items()))
    rows = [[count, *map(number, (min(s), statistics.median(s), max(s)))] for count, s in found.items()]
    print(grid(["to", "least s", "median s", "most s"], rows))
    missing = samples["produced"] - samples["trained"] - sum(samples["dropped"].values()) - samples["in_flight"]
    print(f"{samples['produced']:,} samples, {missing} missing; dropped: {samples['dropped']}")


if __name__ == "__main__":
    main()
