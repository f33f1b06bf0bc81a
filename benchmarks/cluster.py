"""The same plan on several hosts of this machine: its rate against the local runtime's, and what cuts do to it.

``python -m benchmarks.cluster [--rounds N] [--seconds S] [--on processes:3 ray]`` measures in turn, each time in a run
of its own; start-up and compilation are outside it.

``python -m benchmarks.cluster --cuts [--every S] [--times N] [--long S]`` trains on hosts in network namespaces (root,
and ``ip``), takes the link of one down for 5 s again and again, then once for long, and says what became of samples.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

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


class Namespaces:
    """``count`` hosts, each in a network namespace of its own, joined by a bridge."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._ip("link", "add", "weft0", "type", "bridge")
        self._ip("addr", "add", "10.77.0.254/24", "dev", "weft0")
        self._ip("link", "set", "weft0", "up")
        for i in range(count):
            self._ip("netns", "add", f"weft-{i}")
            self._ip("link", "add", f"weft-v{i}", "type", "veth", "peer", "name", "eth0", "netns", f"weft-{i}")
            self._ip("link", "set", f"weft-v{i}", "master", "weft0", "up")
            self._ip("-n", f"weft-{i}", "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                self._ip("-n", f"weft-{i}", "link", "set", link, "up")

    def provider(self) -> Any:
        """Their agents are processes in the namespaces."""
        from weft.runtimes.cluster.hosts import Offer
        from weft.runtimes.cluster.processes import ProcessHosts
        from weft.runtimes.workers.layout.blueprint import Host

        offers = [Offer(Host(i, f"host-{i}", 1, slots=64), f"10.77.0.{i + 1}") for i in range(self.count)]
        commands = [("ip", "netns", "exec", f"weft-{i}") for i in range(self.count)]
        return ProcessHosts(head="10.77.0.254", offers=offers, commands=commands)

    def cut(self, host: int, seconds: float) -> None:
        """Take a host's link down for a while. Blocks."""
        self._ip("link", "set", f"weft-v{host}", "down")
        time.sleep(seconds)
        self._ip("link", "set", f"weft-v{host}", "up")

    def close(self) -> None:
        """Remove all of it."""
        for i in range(self.count):
            subprocess.run(["ip", "netns", "del", f"weft-{i}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", "weft0"], check=False, capture_output=True)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


def cuts(flags: argparse.Namespace) -> None:
    """Train while links go down; print what became of every sample."""
    from weft.runtimes.cluster.cluster import Cluster
    from weft.runtimes.loop.train import train
    from weft.runtimes.prepare.settings import RunConfig, Settings

    spaces, folder, stop = Namespaces(4), Path(tempfile.mkdtemp()), threading.Event()

    def cutting() -> None:
        while not (folder / "r" / "metrics.jsonl").exists():
            time.sleep(0.2)
        for number in range(flags.times):
            time.sleep(flags.every)
            print(f"cut {number + 1}: host-1 for 5 s", flush=True)
            spaces.cut(1, 5.0)
        if flags.long:
            time.sleep(flags.every)
            print(f"cut: host-1 for {flags.long:.0f} s", flush=True)
            spaces.cut(1, flags.long)
            time.sleep(flags.every)
        stop.set()

    config = RunConfig("ppo", "CartPole-v1", plan=PLAN, steps=flags.steps, envs=8, seed=1)
    settings = Settings(root=folder, run="r", tensorboard=False, checkpoint_seconds=2.0, on="processes:4")
    threading.Thread(target=cutting, daemon=True).start()
    cluster = Cluster(spaces.provider())
    try:
        summary = train(config, settings, cluster=cluster).summary
        samples = summary["samples"]
        missing = samples["produced"] - samples["trained"] - sum(samples["dropped"].values()) - samples["in_flight"]
        print(f"{summary['exit']}, {summary['restarts']} restarts, {samples}; missing from the ledger: {missing}")
        print(f"all cuts were made: {stop.is_set()}")
    finally:
        cluster.close()
        spaces.close()
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Rates, or cuts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--on", nargs="+", default=["processes:3"])
    parser.add_argument("--cuts", action="store_true")
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--long", type=float, default=90.0)
    parser.add_argument("--steps", type=int, default=10_000_000)
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    cuts(flags) if flags.cuts else rates(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
