"""Workers that do not wait for each other learn too, and leave nothing behind. Longer figures are in the docs."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toys import same

import weft
from weft.telemetry.ledger import Ledger

THRESHOLD = 450  # of 500; random play gives 22
LEARNS = {  # plan: algorithm, steps, the lag that may be: where gradients come singly, each of both is a version
    "(env+act)*2 | learn": ("ppo", 120_000, 1),
    "env*2 | act | learn": ("impala", 250_000, 1),
    "(env+act+grad)*2 | apply": ("a2c", 250_000, 3),
}


def held() -> set[str]:
    """What descriptors of this process lead to: shared memory, bells and sockets."""
    gc.collect()
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if any(kind in target for kind in ("memfd:", "socket:")) or "[eventfd]" in target:
            found.add(f"{fd.name} -> {target}")
    return found


@pytest.mark.parametrize("plan", [pytest.param(p, marks=[pytest.mark.slow] if k else []) for k, p in enumerate(LEARNS)])
def test_learns(plan, tmp_path):
    algorithm, steps, max_lag = LEARNS[plan]
    before, shared = held(), set(os.listdir("/dev/shm"))
    run = weft.train(
        algorithm, "CartPole-v1", plan=plan, steps=steps, seed=1, root=tmp_path, quiet=True, tensorboard=False
    )
    summary = run.summary
    assert summary["exit"] == "finished"
    assert summary["return_mean"] >= THRESHOLD
    assert summary["restarts"] == 0
    ledger = Ledger.from_json(summary["samples"])
    assert ledger.balanced
    assert steps <= ledger.trained <= summary["env_steps"]
    assert set(ledger.dropped) <= {"stale"}
    assert sum(ledger.dropped.values()) < 0.2 * ledger.produced
    records = [json.loads(line) for line in Path(summary["run"], "metrics.jsonl").read_text().splitlines()]
    assert max(record["lag_max"] for record in records if "lag_max" in record) <= max_lag
    assert same(weft.load(summary["run"]).params, run.params), "as one process, from its folder"
    del run
    assert held() - before == set()
    assert set(os.listdir("/dev/shm")) - shared == set()
    assert Path(summary["run"], "logs").is_dir()


def test_nothing_is_counted_as_lost_with_a_learner_that_lives(tmp_path):
    """Params that are published as gradients are applied one by one must not look newer than they are."""
    plan = "(env+act+grad)*2 | apply"
    run = weft.train("a2c", "CartPole-v1", plan=plan, steps=20_000, root=tmp_path, quiet=True, tensorboard=False)
    assert run.summary["restarts"] == 0
    assert set(run.summary["samples"]["dropped"]) <= {"stale"}
    assert Ledger.from_json(run.summary["samples"]).balanced


COMMANDS = [
    "env*2 | act | learn",
    "(env+act)*2 | learn",
    "env*2 | act+learn",
    "(env+act+learn)*2",
    "env*2 | act*2 | learn",
]


@pytest.mark.slow
@pytest.mark.parametrize("plan", COMMANDS)
def test_the_command_learns(plan, tmp_path):
    """As a user types it; nothing of it is left."""
    shared = set(os.listdir("/dev/shm"))
    command = [
        sys.executable,
        "-m",
        "weft",
        "train",
        "ppo",
        "CartPole-v1",
        "--plan",
        plan,
        "--steps",
        "300000",
        "--json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["return_mean"] >= THRESHOLD
    assert Ledger.from_json(summary["samples"]).balanced
    workers = [path.parent for path in Path("/proc").glob("[0-9]*/cwd") if _is_of(path.parent, tmp_path)]
    assert workers == []
    assert set(os.listdir("/dev/shm")) - shared == set()


def _is_of(process: Path, folder: Path) -> bool:
    """Whether a process works in ``folder``: those of the command were started there."""
    try:
        return Path(os.readlink(process / "cwd")) == folder
    except OSError:
        return False
