"""Ape-X DQN by the number of actors: ``python -m benchmarks.apex [--actors 2 14] [--environments cartpole filming]``.

``(env+act)*N | replay | learn`` with a prioritised replay on the host and a limit on how often a step is drawn, as a
user runs it. Told are env steps a second that came to the replay, their share of what as many processes reach by
stepping alone, measured in the same call, learn calls a second, and how often a step was drawn beside how often it was
to be. One run of each: no spread.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.scaling import Utilisation, stepping
from benchmarks.weft_command import NotRun, records, run

SETTLE_SECONDS = 2.0


class Setting(NamedTuple):
    """An environment, and the sizes with which it is learned."""

    environment: str  # as Weft knows it
    stepped: str  # as stepping alone knows it
    envs: int  # of each actor
    unroll: int
    batch: int
    ratio: float  # how often a step is drawn
    capacity: int


SETTINGS = {
    "cartpole": Setting("CartPole-v1", "CartPole-v1", 16, 32, 512, 1.0, 500_000),
    "burning": Setting("benchmarks.costly:burning", "burning", 8, 16, 256, 1.0, 500_000),
    # Ape-X's own: batches of 512, and somewhat fewer steps drawn than made.
    "filming": Setting("benchmarks.costly:filming", "filming", 8, 32, 512, 0.8, 100_000),
}


def steady(told: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """Rates of a run from ``SETTLE_SECONDS`` after its first record to its last; None where too few were written."""
    settled = [r for r in told if r["wall_seconds"] >= told[0]["wall_seconds"] + SETTLE_SECONDS]
    if len(settled) < 2:
        return None
    first, last = settled[0], settled[-1]
    seconds = last["wall_seconds"] - first["wall_seconds"]

    def gained(name: str) -> float:
        return float(last[name] - first[name])

    inserted = gained("replay/inserted")
    if seconds <= 0 or inserted <= 0:
        return None
    return {
        "rate": inserted / seconds,
        "learn_rate": gained("learn_steps") / seconds,
        "drawn": gained("replay/sampled") / inserted,
        "drawn_of_all": last["replay/sampled"] / last["replay/inserted"],
        "seconds": seconds,
    }


def measure(setting: Setting, plan: str, actors: int, steps: int, flags: argparse.Namespace) -> dict[str, Any]:
    """One run of about ``steps``; where it ended before it was steady, a longer one."""
    envs, ratio = actors * setting.envs, flags.ratio or setting.ratio
    asked = ["--plan", plan, "--envs", str(envs), "--vector", "each", "--algo.prioritised", "true"]
    sizes = {"unroll": setting.unroll, "batch": flags.batch or setting.batch, "samples_per_insert": ratio, "n_step": 3}
    sizes |= {"capacity": setting.capacity, "learning_begins": 10_000}
    asked += [part for name, value in sizes.items() for part in (f"--algo.{name}", str(value))]
    watch, folder = Utilisation(), Path(tempfile.mkdtemp())
    try:
        summary = run(setting.environment, [*asked, "--steps", str(steps)], folder, flags.limit, algorithm="dqn")
        told = records(folder)
    except NotRun as error:
        return {"plan": plan, "failed": str(error)[:300]}
    finally:
        gpu = watch.mean(flags.seconds)
        shutil.rmtree(folder, ignore_errors=True)
    found = steady(told)
    if found is None:
        return measure(setting, plan, actors, 2 * steps, flags)
    samples = summary["samples"]
    missing = samples["produced"] - samples["trained"] - samples["in_flight"] - sum(samples["dropped"].values())
    busy = {key.removeprefix("busy/"): round(value, 2) for key, value in told[-1].items() if key.startswith("busy/")}
    return {
        "plan": plan,
        **found,
        "asked": ratio,
        "busy": busy,
        "gpu": gpu,
        "dropped": samples["dropped"],
        "missing": missing,
        "restarts": summary["restarts"],
        "start": summary["compile_seconds"],
    }


def main(arguments: list[str]) -> int:
    """Measure and print, a line at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apex", description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[2])
    parser.add_argument("--environments", nargs="+", default=["cartpole", "filming"], choices=list(SETTINGS))
    parser.add_argument("--plan", default="(env+act)*{n} | replay | learn", help="{n}: the number of actors")
    parser.add_argument("--ratio", type=float, help="how often a step is drawn; unless given, the environment's own")
    parser.add_argument("--batch", type=int, help="steps in a batch; unless given, the environment's own")
    parser.add_argument("--share", type=float, default=0.5, help="of stepping alone: what a run's length is guessed by")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a run, about")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds after which a run has failed")
    parser.add_argument("--json", type=Path, help="rewritten after each run")
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    outcomes: list[dict[str, Any]] = []
    for name in flags.environments:
        setting = SETTINGS[name]
        for actors in flags.actors:
            limit = stepping(setting.stepped, setting.envs, actors, 2.0)
            print(f"{name}: {actors} × {setting.envs}: stepping alone {limit:,.0f} env steps/s", flush=True)
            steps = round(limit * flags.share * (flags.seconds + SETTLE_SECONDS)) + 10_000
            found = measure(setting, flags.plan.format(n=actors), actors, steps, flags)
            outcomes.append({"environment": name, "actors": actors, "limit": limit, **found})
            if "rate" in found:
                outcomes[-1]["share"] = found["rate"] / limit
                print(
                    f"  {found['plan']}: {found['rate']:,.0f} env steps/s, {found['rate'] / limit:.2f} of it; "
                    f"{found['learn_rate']:,.0f} learn calls/s; drawn {found['drawn']:.3f} times "
                    f"(asked {found['asked']:g})",
                    flush=True,
                )
            print(f"  {found}", flush=True)
            if flags.json:
                flags.json.parent.mkdir(parents=True, exist_ok=True)
                flags.json.write_text(json.dumps(outcomes, indent=1) + "\n")
    return int(any("failed" in outcome for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
