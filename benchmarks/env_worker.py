"""What an env worker costs: seconds from its start to its first step, and memory above the environment's own.

``python -m benchmarks.env_worker [ENV]``. The worker is a real one, started by the launcher; this process stands in for
act, answers its first timestep with an action and waits for the next. Beside it a bare process that makes the same
environments and steps them once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import machine
from weft.runtimes.prepare.config import RunConfig, Settings, prepare
from weft.runtimes.workers.control.launcher import Launcher
from weft.runtimes.workers.layout.launch_spec import launch_spec
from weft.streams.bell import Bell
from weft.streams.channel import Stamp
from weft.streams.registry import open_reader, open_writer

ENVS = 8
REPEATS = 9

BARE = """
import time
began = time.perf_counter()
import gymnasium as gym
envs = [gym.make({name!r}, disable_env_checker=True) for _ in range({count})]
for env in envs:
    env.reset(seed=0)
    env.step(env.action_space.sample())
print(open("/proc/self/status").read())
"""


def memory(status: str) -> tuple[float, float]:
    """Resident MB, and those of them that are the process's own."""
    lines = {
        line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "RssAnon"))
    }
    return int(lines["VmRSS"]) / 1024, int(lines["RssAnon"]) / 1024


def worker(name: str) -> tuple[float, tuple[float, float]]:
    """Start one, step it once: (seconds, memory)."""
    prepared = prepare(RunConfig("ppo", name, plan="env | act | learn", envs=ENVS, vector="each"))
    launch = launch_spec(prepared, Settings(ring=1))
    blueprint = launch.blueprint
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(blueprint, launch.specs, {**launch.common, "version": 0}, Path(folder))
        try:
            (env,), (act,) = ([side.index for side in blueprint.sides_of(name)] for name in ("env", "act"))
            mine, theirs = Bell.from_fd(*launcher.bells[act].fds), launcher.bells[env]
            timesteps = open_reader(launcher.channels["timestep/0"].spec, mine, theirs)
            actions = open_writer(launcher.channels["action/0"].spec, mine, [theirs])
            began = time.perf_counter()
            launcher.start(0, {"states": [], "lanes": [], "lost": {}, "coordinator": None}, [])
            first = timesteps.receive(30.0)
            assert first is not None
            timesteps.release(first)
            places = actions.reserve()
            assert places is not None
            np.copyto(places[0], 0)
            actions.commit(Stamp(*first.stamp[:3]))
            assert timesteps.receive(30.0) is not None
            taken = time.perf_counter() - began
            pid = launcher.children[0].process.pid
            return taken, memory(Path(f"/proc/{pid}/status").read_text())
        finally:
            launcher.end(0)
            launcher.close()


def bare(name: str) -> tuple[float, tuple[float, float]]:
    """A process with the environments and nothing else: (seconds, memory)."""
    began = time.perf_counter()
    code = BARE.format(name=name, count=ENVS)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return time.perf_counter() - began, memory(said)


def main(arguments: list[str]) -> int:
    """Measure alternately, print medians."""
    name = arguments[0] if arguments else "CartPole-v1"
    print(machine.describe())
    ours, theirs = zip(*[(worker(name), bare(name)) for _ in range(REPEATS)], strict=True)
    for what, rows in (("env worker", ours), ("bare process", theirs)):
        seconds = [row[0] for row in rows]
        resident, own = median(row[1][0] for row in rows), median(row[1][1] for row in rows)
        spread = f"{min(seconds):.2f} – {max(seconds):.2f}"
        print(
            f"{what}: {ENVS} × {name}: first step after {median(seconds):.2f} s ({spread}), "
            f"{resident:.0f} MB ({own:.0f} own)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
