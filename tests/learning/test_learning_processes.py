"""Workers that do not wait for each other learn too, and leave nothing behind. Longer figures are in the docs."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("plan", LEARNS)
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
    assert ledger.trained == summary["env_steps"]
    assert set(ledger.dropped) <= {"stale"}
    assert sum(ledger.dropped.values()) < 0.2 * ledger.produced
    records = [json.loads(line) for line in Path(summary["run"], "metrics.jsonl").read_text().splitlines()]
    assert max(record["lag_max"] for record in records if "lag_max" in record) <= max_lag
    del run
    assert held() - before == set()
    assert set(os.listdir("/dev/shm")) - shared == set()
    assert Path(summary["run"], "logs").is_dir()
