"""Exact resume: ``python -m benchmarks.resume [--kills 20]``.

Each case is trained twice: once without a break, and once with a SIGKILL of the whole run at random moments, after
each of which the same command goes on with it. Both must end with the same params, bit for bit. ``--launcher 100``
kills as many launchers of runs in workers instead, and looks for what they leave behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from weft.chaos.victim import Victim

PLANS = {"inline": "inline", "lockstep": "env*2 | act | learn"}
CASES = [
    (algorithm, environment, plan)
    for algorithm in ("ppo", "recurrent ppo")
    for environment in ("CartPole-v1", "weft:CartPole-v1")
    for plan in PLANS
]
LEAST_SECONDS = 1.0
MOST_SECONDS = 8.0  # after a run was started, or went on


def command(algorithm: str, environment: str, plan: str, steps: int) -> list[str]:
    """What is trained: saved after every learn step or so, so that there is always something to go on from."""
    flags = ["--plan", PLANS[plan], "--envs", "8", "--seed", "3", "--steps", str(steps), "--checkpoint-seconds", "0.2"]
    flags += ["--algo.hidden", "16", *(["--algo.recurrent", "gru"] if "recurrent" in algorithm else [])]
    flags += ["--lockstep"] if plan == "lockstep" else []
    flags += ["--vector", "each"] if ":" not in environment else []
    return [algorithm.rpartition(" ")[2], environment, *flags]


def train(arguments: list[str], root: Path, name: str) -> subprocess.Popen[bytes]:
    """A run in a session of its own."""
    whole = [sys.executable, "-m", "weft", "train", *arguments, "--root", str(root), "--run", name, "--json", "--quiet"]
    with (root / f"{name}.out").open("wb") as out, (root / f"{name}.err").open("ab") as err:
        return subprocess.Popen([*whole, "--no-tensorboard"], stdout=out, stderr=err, start_new_session=True)


def outcome(root: Path, name: str) -> dict[str, Any]:
    """A run's summary."""
    found: dict[str, Any] = json.loads((root / f"{name}.out").read_text())
    return found


def kill_and_resume(arguments: list[str], root: Path, kills: int, draw: random.Random) -> tuple[dict[str, Any], int]:
    """Train with kills; the summary, and how many there were: fewer where the run has ended before."""
    done = 0
    process = train(arguments, root, "killed")
    while True:
        try:
            code = process.wait(draw.uniform(LEAST_SECONDS, MOST_SECONDS) if done < kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # workers are in sessions of their own, and die with it
            process.wait()
            done += 1
            process = train(arguments, root, "killed")
            continue
        if code:
            raise RuntimeError((root / "killed.err").read_text()[-2000:])
        return outcome(root, "killed"), done


def launchers(count: int, seed: int) -> int:
    """Kill launchers; how many left something behind."""
    draw, bad = random.Random(seed), 0
    for k in range(count):
        with tempfile.TemporaryDirectory() as folder:
            arguments = command("ppo", "CartPole-v1", "lockstep", 10**9)
            victim = Victim(Path(folder), "killed", [a for a in arguments if k % 2 or a != "--lockstep"])
            until = time.monotonic() + draw.uniform(LEAST_SECONDS, MOST_SECONDS)
            while time.monotonic() < until:
                victim.workers()
                time.sleep(0.05)
            os.kill(victim.process.pid, signal.SIGKILL)
            victim.process.wait()
            deadline = time.monotonic() + 10.0
            while (left := victim.leaks()) and time.monotonic() < deadline:
                time.sleep(0.1)
            bad += bool(left)
            print(f"{k + 1:>4}  {len(victim.seen) - 1} workers seen; left behind: {left or 'nothing'}", flush=True)
            victim.close()
    return bad


def main(arguments: list[str]) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resume", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="of each case (20)")
    parser.add_argument("--steps", type=int, default=0, help="of each case; 0: enough for the kills")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    parser.add_argument("--launcher", type=int, default=0, metavar="N", help="kill N launchers instead")
    parser.add_argument("--cases", nargs="*", help="algorithm/environment/plan; all unless given")
    flags = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    if flags.launcher:
        bad = launchers(flags.launcher, flags.seed)
        print(f"{flags.launcher} launchers killed, {bad} left something behind")
        return int(bad > 0)
    differ = 0
    for algorithm, environment, plan in CASES:
        case = f"{algorithm}/{environment}/{plan}"
        if flags.cases and case not in flags.cases:
            continue
        draw, asked = random.Random(flags.seed), command(algorithm, environment, plan, flags.steps or STEPS[plan])
        killed, runs, same, kills = {}, 0, True, 0
        with tempfile.TemporaryDirectory() as folder:
            train(asked, Path(folder), "whole").wait()
            whole = outcome(Path(folder), "whole")
        while kills < flags.kills:  # a run may end before it was killed often enough
            with tempfile.TemporaryDirectory() as folder:
                killed, more = kill_and_resume(asked, Path(folder), flags.kills - kills, draw)
            runs, kills = runs + 1, kills + more
            same &= all(whole[key] == killed[key] for key in ("params_sha256", "env_steps", "episodes", "return_mean"))
        differ += not same
        words = f"{kills} kills in {runs} runs: {'the same' if same else 'DIFFERS'}"
        print(f"{case:<44} {words}  {whole['params_sha256'][:16]}", flush=True)
    return int(differ > 0)


STEPS = {"inline": 500_000, "lockstep": 200_000}
"""Environment steps: long enough for twenty kills."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
