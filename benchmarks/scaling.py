"""Trained steps per second by the number of env workers: ``python -m benchmarks.scaling [--workers 1 2 4 …]``.

For a machine with many cores and a GPU. Each plan runs as a user would run it; its limit is what as many processes
reach by stepping alone, measured right before the run and right after it (the mean counts, since limits drift): the
same slices of environments in turn, with random actions, since a game that is played costs more than one that stands
still. ``busy`` is the share of its time that a stage's sides worked, ``GPU`` the card's own utilisation (nvidia-smi),
sampled while the run was steady. With ``--rounds`` plans take turns, and shares have a median and a spread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks import costly, machine
from benchmarks.weft_command import NotRun, records, run, steady_rate

PLANS = {
    "srl": "env*{n} | act | learn",
    "srl2": "env*{n} | act*2 | learn",
    "seed": "env*{n} | act+learn",
    "actors": "(env+act)*{n} | learn",
}
UNROLL = 32
PONG = "ALE/Pong-v5"
ENVIRONMENTS = {  # as Weft knows them, and how they are to be stepped; Pong's own vector form would take all cores
    "filming": ("benchmarks.costly:filming", ["--vector", "each"]),
    "burning": ("benchmarks.costly:burning", ["--vector", "each"]),
    "pong": (PONG, ["--vector", "native", "--env.num_threads", "1"]),
}


def stepping(name: str, envs: int, workers: int, seconds: float, ring: int = 1) -> float:
    """Env steps per second of ``workers`` processes that do nothing else, each with ``envs`` in ``ring`` slices."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(workers) as pool:
        pool.starmap(_step_for, [(name, envs, ring, 0.1)] * workers)  # started, and warm
        return float(sum(pool.starmap(_step_for, [(name, envs, ring, seconds)] * workers)))


def _step_for(name: str, envs: int, ring: int, seconds: float) -> float:
    slices = [_stepper(name, envs // ring) for _ in range(ring)]
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for step in slices:
            step()
        steps += envs // ring * ring
    return steps / (time.perf_counter() - began)


def _stepper(name: str, envs: int) -> Callable[[], None]:
    """What steps all of ``envs`` environments once."""
    if name == "pong":
        import ale_py

        gym.register_envs(ale_py)
        games = gym.make_vec(PONG, envs, vectorization_mode="vector_entry_point", num_threads=1)
        games.reset(seed=0)
        actions = itertools.cycle(np.random.default_rng(0).integers(0, 6, (1000, envs)))
        return lambda: games.step(next(actions)) and None
    made = [costly.make(name) for _ in range(envs)]
    for env in made:
        env.reset(seed=0)

    def step() -> None:
        for env in made:
            if env.step(0)[2]:
                env.reset()

    return step


class Utilisation:
    """Samples the GPU's own figure twice a second; ``mean`` of those of the last ``seconds``. NaN without a GPU."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop.wait(0.5):
            try:
                said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
                self.samples.append((time.monotonic(), float(said.split()[0])))
            except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
                return

    def mean(self, seconds: float) -> float:
        """Stop, and tell."""
        self._stop.set()
        self._thread.join()
        late = [value for at, value in self.samples if at > time.monotonic() - seconds - 2.0]
        return sum(late) / len(late) if late else float("nan")


def measure(name: str, plan: str, workers: int, flags: argparse.Namespace) -> dict[str, Any]:
    """One run of a plan."""
    envs = workers * flags.envs
    folder = Path(tempfile.mkdtemp())
    rate = flags.rates[name]
    environment, how = ENVIRONMENTS[name]
    asked = ["--plan", plan, "--envs", str(envs), *how, "--ring", str(flags.ring), "--algo.unroll", str(UNROLL)]
    asked += ["--algo.epochs", "1", "--algo.minibatches", "1", "--max-lag", str(flags.max_lag)]
    asked += ["--steps", str(max(12 * envs * UNROLL, round(rate * workers * (flags.seconds + 2.0))))]
    watch = Utilisation()
    try:
        summary = run(environment, asked, folder, 300.0)
        told = records(folder)
    except NotRun as error:
        return {"plan": plan, "failed": str(error)[:300]}
    finally:
        gpu = watch.mean(flags.seconds)
        shutil.rmtree(folder, ignore_errors=True)
    busy = {key.removeprefix("busy/"): round(value, 2) for key, value in told[-1].items() if key.startswith("busy/")}
    samples = summary["samples"]
    missing = samples["produced"] - samples["trained"] - samples["in_flight"] - sum(samples["dropped"].values())
    return {
        "plan": plan,
        "rate": steady_rate(told, envs * UNROLL),
        "busy": busy,
        "gpu": gpu,
        "dropped": samples["dropped"],
        "missing": missing,
        "start": summary["compile_seconds"],
    }


def beside_limits(name: str, workers: int, flags: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs of all plans in turns, each with its ``limits``, and with its ``share`` of their mean where it ran."""
    before, found = stepping(name, flags.envs, workers, 3.0, flags.ring), []
    for k in range(flags.rounds):
        for plan in reversed(flags.plans) if k % 2 else flags.plans:
            one = measure(name, PLANS[plan].format(n=workers), workers, flags)
            after = stepping(name, flags.envs, workers, 3.0, flags.ring)
            told = {"environment": name, "workers": workers, "limits": (before, after)}
            if one.get("rate") is not None:
                told["share"] = one["rate"] / ((before + after) / 2)
            found.append({**one, **told})
            before = after
    return found


def main(arguments: list[str]) -> int:
    """Measure and print, a line at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 14])
    parser.add_argument("--environments", nargs="+", default=["filming"], choices=list(ENVIRONMENTS))
    parser.add_argument("--plans", nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--envs", type=int, default=24, help="of each worker")
    parser.add_argument("--ring", type=int, default=3)
    parser.add_argument("--max-lag", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args(arguments)
    print(machine.describe(), flush=True)
    outcomes = []
    for name in flags.environments:
        flags.rates = {name: stepping(name, flags.envs, 1, 1.0, flags.ring)}
        for workers in flags.workers:
            found = beside_limits(name, workers, flags)
            outcomes += found
            for plan in dict.fromkeys(one["plan"] for one in found):
                of_it = [one for one in found if one["plan"] == plan]
                shares = [one["share"] for one in of_it if "share" in one] or [float("nan")]
                spread = f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}, {len(shares)} runs)"
                print(f"{name}, {workers} × {flags.envs}: {plan:<28} {spread} of its limit", flush=True)
                for one in of_it:
                    print(f"    {one}", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(outcomes, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
