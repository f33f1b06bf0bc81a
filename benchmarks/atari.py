"""Pong on a machine's cores: ``python -m benchmarks.atari [--rounds 3] [--old DIR]``.

PPO with Nature's network, 8 environments of 128 steps, 4 epochs of 4 minibatches, as everybody runs it: ``weft train``
without a flag, Stable-Baselines3, and a bare PyTorch loop over ALE's own vector form (as CleanRL's). They take turns;
steps are the policy's, of four frames. The peers need ``python -m benchmarks.peers install sb3 ale-py
opencv-python-headless``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import checkouts, machine
from benchmarks.peers import how_to_install, python_of
from benchmarks.weft_command import records, run, steady_rate
from benchmarks.worker import ROOT, Worker

SIZES = {"envs": 8, "unroll": 128, "epochs": 4, "minibatches": 4}
BATCH = SIZES["envs"] * SIZES["unroll"]
LEARN_STEPS = 8


def weft(checkout: Path) -> float:
    """Steps per second that ``weft train`` trains on."""
    with tempfile.TemporaryDirectory() as folder:
        run("ALE/Pong-v5", ["--steps", str(LEARN_STEPS * BATCH)], Path(folder), 600.0, checkout=checkout)
        rate = steady_rate(records(Path(folder)), BATCH)
    return float("nan") if rate is None else rate


def main(arguments: list[str]) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.atari", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="that a peer is measured in a round (15)")
    parser.add_argument("--old", type=Path, metavar="DIR", help="another checkout of Weft, to be measured as well")
    asked = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {"Weft": lambda: weft(ROOT)}
        if asked.old:
            checkouts.require_own_weft(asked.old)
            sides["Weft, old"] = lambda: weft(asked.old)
        if python := python_of("sb3"):
            peer = stack.enter_context(Worker("benchmarks.atari_worker", python))
            for label, kind in (("SB3", "sb3"), ("PyTorch loop", "bare")):
                sides[label] = peer.prepare(label, kind, asked.seconds, **SIZES)
        else:
            print(how_to_install("sb3"))
        rates: dict[str, list[float]] = {label: [] for label in sides}
        for k in range(asked.rounds):
            for label in list(sides) if k % 2 else reversed(list(sides)):
                rates[label].append(sides[label]())
        for label, found in rates.items():
            ratios = [mine / theirs for mine, theirs in zip(rates["Weft"], found, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{label:<20} {statistics.median(found):>7.0f} steps/s, Weft / it {spread}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
