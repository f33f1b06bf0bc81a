"""Run folders made by hand, as runs leave them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

ARRAYS = [["x", "float32", [32, 4]]]
PLAN = {
    "expression": "env*2 | act | learn",
    "groups": [
        {"fragments": ["env"], "replicas": 2, "device": None},
        {"fragments": ["act"], "replicas": 1, "device": None},
        {"fragments": ["learn"], "replicas": 1, "device": "gpu:0"},
    ],
    "graph": {
        "fragments": [
            {"name": "env", "pure": False},
            {"name": "act", "pure": True},
            {"name": "learn", "pure": True},
        ],
        "streams": [
            {
                "name": n,
                "source": a,
                "target": b,
                "delivery": "block",
                "rhythm": r,
                "arrays": [["x", "float32", [32, 4]]],
            }
            for n, a, b, r in (
                ("timestep", "env", "act", "step"),
                ("action", "act", "env", "step"),
                ("unroll", "act", "learn", "unroll"),
                ("params", "learn", "act", "update"),
            )
        ],
    },
    "envs": 32,
}
CONFIG = {
    "algorithm": "ppo",
    "environment": "CartPole-v1",
    "plan": "env*2 | act | learn",
    "steps": 1000,
    "seed": 1,
    "algo": {"clip": 0.2},
}


def record(step: int, **more: Any) -> dict[str, Any]:
    """A record as a run writes it."""
    return {"env_steps": step, "learn_steps": step // 10, "wall_seconds": step / 100, "return_mean": step / 2, **more}


BUSY = {"busy/env": 0.2, "busy/act": 0.9, "busy/learn": 0.3}


def live(**more: Any) -> dict[str, Any]:
    """What ``live.json`` holds."""
    workers = [
        {
            "name": n,
            "stages": [n.partition("-")[0]],
            "busy": [0.5],
            "state": "ready",
            "life": 0,
            "pid": 1,
            "device": "cpu",
        }
        for n in ("env-0", "env-1", "act-0", "learn-0")
    ]
    return {
        "format": 1,
        "pid": 1,
        "host": "here",
        "began": time.time() - 10,
        "at": time.time(),
        "training": True,
        "env_steps": 500,
        "record": {
            **record(500),
            "busy/env": 0.2,
            "busy/act": 0.9,
            "busy/learn": 0.3,
            "lag": 0.5,
            "queue/unroll": 0.25,
        },
        "notes": [],
        "workers": workers,
        "streams": {"unroll": {"messages_per_second": 50.0, "bytes_per_message": 10_000}},
        **more,
    }


def make_run(root: Path, name: str, *, rows: int = 20, config: dict[str, Any] | None = None, **files: Any) -> Path:
    """A run's folder with ``rows`` records; ``files`` are JSON files by their names without the ending."""
    folder = root / name
    for part in ("logs", "videos"):
        (folder / part).mkdir(parents=True)
    contents = {"config": CONFIG | (config or {}), "plan": PLAN, **files}
    for file, content in contents.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    append(folder, [record(10 * (k + 1)) for k in range(rows)])
    return folder


def append(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write more records."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)
