"""``python -m benchmarks.population learning|cost``: what members in one program are good for, and what they cost.

learning   PBT against the best of as many fixed random settings, at equal steps of each member, over several seeds
cost       members in one program against one run with all their environments together, env steps per second
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import machine

ENVIRONMENT = "weft:Pendulum-v1"
VARY = {
    "learning_rate": "1e-5..1e-1:log",
    "entropy_cost": "1e-5..1:log",
    "discount": "0.8..0.999",
    "trace_decay": "0.5..1",
}
FIELDS: dict[str, Any] = {"unroll": 64, "epochs": 4, "minibatches": 4, "learning_rate_end": None}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.population", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=("learning", "cost"))
    parser.add_argument("--seeds", type=int, default=5, help="of learning")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100_000, help="of each member")
    parser.add_argument("--envs", type=int, help="of each member (16; cost: 32)")
    parser.add_argument("--rounds", type=int, default=7, help="of cost")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="of learning: the first seed's lineage")
    flags = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    return _learning(flags) if flags.what == "learning" else _cost(flags)


def _learning(flags: argparse.Namespace) -> int:
    """A row for each seed: the best member's return in training (its last 100 episodes) and over 100 fresh ones."""
    import weft

    rows = []
    asked: dict[str, Any] = {"vary": VARY, "members": flags.members, "steps": flags.steps, "envs": flags.envs or 16}
    how = {"quiet": True, "tensorboard": False, "checkpoint_seconds": 1e9}
    with tempfile.TemporaryDirectory() as root:
        for seed in range(flags.seeds):
            began = time.perf_counter()
            common = {**asked, **how, **FIELDS, "seed": 100 * seed, "root": root}
            fixed = weft.sweep("ppo", ENVIRONMENT, run=f"fixed-{seed}", **common)
            copied = weft.pbt("ppo", ENVIRONMENT, run=f"pbt-{seed}", **common)
            if flags.picture and not seed:
                flags.picture.write_text((copied.folder / "lineage.svg").read_text())
            row = {"seed": 100 * seed, "seconds": round(time.perf_counter() - began, 1)}
            for name, found in (("fixed", fixed), ("pbt", copied)):
                played = weft.evaluate(found.load(), episodes=100)
                row |= {f"{name}_training": found.best.return_mean, f"{name}_played": played.return_mean}
                row[f"{name}_values"] = found.best.values
            rows.append(row)
            print(json.dumps(row), flush=True)
    for name in ("fixed_training", "pbt_training", "fixed_played", "pbt_played"):
        values = [row[name] for row in rows]
        print(f"{name}: mean {fmean(values):.1f}, of each seed {', '.join(f'{value:.1f}' for value in values)}")
    for kind in ("training", "played"):
        better = sum(row[f"pbt_{kind}"] > row[f"fixed_{kind}"] for row in rows)
        print(f"PBT better ({kind}): {better} of {len(rows)} seeds")
    return 0


def _cost(flags: argparse.Namespace) -> int:
    """Interleaved: the members' program, and one run with as many environments as they have together."""
    import jax
    import numpy as np

    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.members import MembersEngine
    from weft.runtimes.compiled.replicas import Layout
    from weft.runtimes.prepare.config import RunConfig, prepare

    members, envs = flags.members, flags.envs or 32
    own = prepare(RunConfig("ppo", "weft:CartPole-v1", envs=envs, steps=10**8))
    whole = prepare(RunConfig("ppo", "weft:CartPole-v1", envs=envs * members, steps=10**8))
    env, device = own.source.pure, jax.devices()[0]
    assert env is not None
    values = {"learning_rate": np.geomspace(1e-4, 1e-2, members).tolist(), "entropy_cost": [0.01] * members}
    engines: dict[str, Any] = {
        "members in one program": MembersEngine(own.algorithm, env, device, envs, 0, values),
        "one run, same total batch": FusedEngine(whole.graph, env, Layout((device,)), envs * members, 0),
    }
    iterations = {}
    for name, engine in engines.items():
        engine.start()
        engine.advance(1)()
        began = time.perf_counter()
        engine.advance(2)()
        iterations[name] = max(1, min(128, int(2 * 1.0 / (time.perf_counter() - began))))
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(flags.rounds):
        for name, engine in engines.items():
            began = time.perf_counter()
            report = engine.advance(iterations[name])()
            rates[name].append(report.env_steps / (time.perf_counter() - began))
    size = f"{members} members x {envs} environments, unroll {own.algorithm.unroll}"
    print(f"measured: {size}; {flags.rounds} interleaved rounds, about 1 s each")
    for name, found in rates.items():
        print(f"{name}: {median(found):,.0f} env steps/s ({min(found):,.0f} to {max(found):,.0f})")
    mine, theirs = rates.values()
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    print(f"ratio: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
