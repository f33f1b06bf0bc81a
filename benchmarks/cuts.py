"""What cuts of the network do to a run: hosts in network namespaces, whose links go down (root, and ``ip``).

``python -m benchmarks.cuts [--every S] [--times N] [--long S]`` trains on four hosts, takes the link of one down for
5 s again and again, then once for long, and says what became of every sample.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.checked import found
from benchmarks.namespaces import Namespaces

PLAN = "env*4 | act*2 | checker+learn"
SHORT = 5.0
CUT = 1  # the host that is cut off


def main(arguments: list[str]) -> int:
    """1 where a sample is missing, late, or trained on twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuts", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--long", type=float, default=90.0)
    parser.add_argument("--pace", type=float, default=0.002, help="seconds that a step of an environment waits")
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    return _train(flags)


def _train(flags: argparse.Namespace) -> int:
    from weft.runtimes.cluster.cluster import Cluster
    from weft.runtimes.loop.train import train
    from weft.runtimes.prepare.settings import RunConfig, Settings
    from weft.telemetry.stopping import Hooks

    folder = Path(tempfile.mkdtemp())
    told = _Told(folder / "r" / "live.json")
    os.environ |= {"WEFT_CHECKED": str(folder / "checked"), "WEFT_PACE": str(flags.pace)}
    spaces = Namespaces(4)
    config = RunConfig(
        "benchmarks.checked:Checked",
        "benchmarks.checked:Numbered",
        plan=PLAN,
        steps=10**9,
        envs=8,
        seed=1,
        fields={"unroll": 32, "epochs": 1, "minibatches": 1, "hidden": (16,)},
    )
    settings = Settings(root=folder, run="r", tensorboard=False, checkpoint_seconds=2.0, on="processes:4")
    threading.Thread(target=_cut, args=(spaces, flags, told), daemon=True).start()
    cluster = Cluster(spaces.provider())
    try:
        summary = train(config, settings, cluster=cluster, hooks=Hooks(told.record, told.is_over)).summary
        samples = summary["samples"]
        missing = samples["produced"] - samples["trained"] - sum(samples["dropped"].values()) - samples["in_flight"]
        ids = found(folder / "checked")
        print(f"{summary['exit']}, {summary['restarts']} restarts, {samples}; missing from the ledger: {missing}")
        print(f"ids that learn was given: {ids}")
        print(f"all cuts were made: {told.over}")
        return int(bool(missing or ids.late or ids.twice) or not told.over)
    finally:
        cluster.close()
        spaces.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Told:
    """When the run last wrote a record, and how many workers it has replaced."""

    def __init__(self, live: Path) -> None:
        self._live, self.at, self.longest, self.over = live, 0.0, 0.0, False

    @property
    def restarts(self) -> int:
        return int(json.loads(self._live.read_text())["restarts"])

    def record(self, record: Any) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self.at) if self.at else 0.0
        self.at = now

    def is_over(self, record: Any) -> str:
        return "all cuts were made" if self.over else ""


def _cut(spaces: Namespaces, flags: argparse.Namespace, told: _Told) -> None:
    while not told.at:
        time.sleep(0.2)
    for number, seconds in enumerate([SHORT] * flags.times + [flags.long] * bool(flags.long)):
        time.sleep(flags.every)
        before, told.longest = told.restarts, 0.0
        spaces.cut(CUT, seconds)
        time.sleep(min(flags.every, 15.0))
        print(
            f"cut {number + 1}: host-{CUT} for {seconds:.0f} s; {told.restarts - before} workers replaced; "
            f"longest without a record {told.longest:.1f} s",
            flush=True,
        )
    told.over = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
