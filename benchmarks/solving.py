"""Time to solve CartPole-v1 from scratch: wall seconds until the last 100 episodes have a mean return of 475.

python -m benchmarks.solving                          every system once, one after the other
python -m benchmarks.solving --runs 3 --limit 120     three seeds, and no longer than two minutes each
python -m benchmarks.solving --plans inline 'env*2 | act+learn'

From the start of training: imports and the start of processes are not counted, Weft's compilation is.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.distributed import PEERS
from benchmarks.peers import how_to_install, python_of
from benchmarks.table import grid
from benchmarks.weft_command import START_SECONDS, NotRun, records, run
from benchmarks.worker import ROOT

THRESHOLD = 475.0
PLANS = ("inline", "(env+act)*2 | learn", "env*2 | act+learn", "env*2 | act | learn")

# What Weft's tuned settings for CartPole-v1 are, in the peers' words: 2 × 16 environments, unrolls of 32, 8 epochs of
# 4 minibatches, Adam 2e-3, discount 0.98, GAE 0.95, clip 0.2, no entropy. IMPALA has its own defaults.
COMMON = {"environment": "CartPole-v1", "envs": 16, "unroll": 32}
ASKED: dict[str, dict[str, Any]] = {
    "Sample Factory": {
        **COMMON,
        "workers": 2,
        "batch": 256,
        "num_batches_per_epoch": 4,
        "num_epochs": 8,
        "learning_rate": 2e-3,
        "gamma": 0.98,
        "gae_lambda": 0.95,
        "ppo_clip_ratio": 0.2,
        "exploration_loss_coeff": 0.0,
    },
    "RLlib PPO": {
        **COMMON,
        "kind": "ppo",
        "runners": 2,
        "batch": 1024,
        "minibatch_size": 256,
        "num_epochs": 8,
        "lr": 2e-3,
        "gamma": 0.98,
        "lambda_": 0.95,
        "clip_param": 0.2,
        "use_kl_loss": False,
        "vf_loss_coeff": 0.5,
        "vf_clip_param": math.inf,
        "grad_clip": 0.5,
    },
    "RLlib IMPALA": {**COMMON, "kind": "impala", "runners": 2, "batch": 500, "timeout_s_sampler_manager": 1.0},
}


def weft(plan: str, seed: int, limit: float) -> float:
    """Weft with its tuned settings, read from the run's own records; infinite where it never got there."""
    with tempfile.TemporaryDirectory(prefix="weft-solving-") as folder:
        flags = ["--plan", plan, "--seed", str(seed), "--vector", "each"]
        run("CartPole-v1", flags, Path(folder), START_SECONDS + limit)
        for record in records(Path(folder)):
            if record["episodes"] >= 100 and (record["return_mean"] or 0.0) >= THRESHOLD:
                return float(record["wall_seconds"])
    return math.inf


def peer(label: str, seed: int, limit: float) -> float:
    """A peer with what :data:`ASKED` says, in a process of its own."""
    contender = PEERS[label]
    asked = {**ASKED[label], "threshold": THRESHOLD, "limit": limit, "seed": seed}
    command = [str(python_of(contender.peer)), "-m", contender.module, "solve", json.dumps(asked)]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return float(ended.stdout.strip().splitlines()[-1])


def row(label: str, solve: Callable[[int], float], seeds: Sequence[int]) -> list[str]:
    """Seconds of every seed, and their median; blocks until all are done."""
    taken: list[float] = []
    for seed in seeds:
        try:
            taken.append(solve(seed))
        except NotRun as error:
            print(f"{label}: {error}", file=sys.stderr, flush=True)
            return [label, error.how, ""]
        print(f"{label}, seed {seed}: {taken[-1]:.1f} s", file=sys.stderr, flush=True)
    words = [f"{seconds:.1f}" if math.isfinite(seconds) else "never" for seconds in [statistics.median(taken), *taken]]
    return [label, words[0], ", ".join(words[1:])]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solving", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1, help="seeds, from 0 on (1)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of each (300)")
    parser.add_argument("--plans", nargs="+", default=PLANS, metavar="PLAN", help="Weft's plans")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    flags = parser.parse_args(arguments)
    seeds = range(flags.runs)
    rows = [row(f"Weft {plan}", partial(weft, plan, limit=flags.limit), seeds) for plan in flags.plans]
    for label in () if flags.no_peers else ASKED:
        if python_of(PEERS[label].peer):
            rows.append(row(label, partial(peer, label, limit=flags.limit), seeds))
        else:
            print(how_to_install(PEERS[label].peer), file=sys.stderr)
    print(grid([f"seconds until the mean return is {THRESHOLD:g}", "median", "seed by seed"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
