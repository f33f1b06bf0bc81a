"""``summary.json``: how a run ended. What its fields mean is in docs/runs.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from weft.runtimes.loop.counters import Counters
from weft.runtimes.prepare.config import Prepared
from weft.services.checkpoints import params_sha256


def summarise(prepared: Prepared, counters: Counters, folder: Path, how: str, params: Any) -> dict[str, Any]:
    """The summary of a run that ended as ``how`` says, with these params: JSON."""
    summary: dict[str, Any] = {
        "algorithm": prepared.name,
        "environment": prepared.source.name,
        "plan": str(prepared.plan),
        "seed": prepared.seed,
        "envs": prepared.envs,
        "env_steps": counters.env_steps,
        "learn_steps": counters.learn_steps,
        "wall_seconds": round(counters.wall_seconds, 3),
        "compile_seconds": round(counters.compile_seconds, 3),
        "env_steps_per_second": round(counters.env_steps_per_second, 1),
        "frame_skip": prepared.source.spec.frame_skip,
        "episodes": sum(window.total for window in counters.windows),
        "return_mean": counters.return_mean,
        "params_sha256": params_sha256(params),
        "samples": counters.ledger.to_json(),
        "restarts": counters.restarts,
        "env_errors": counters.env_errors,
        "observations_outside_box": counters.outside_box,
        "exit": how,
        "run": str(folder),
    }
    if prepared.source.about:
        summary["preprocessing"] = prepared.source.about
    if prepared.seeds:
        summary["seeds"] = [
            {
                "seed": prepared.seed + k,
                "return_mean": window.return_mean,
                "episodes": window.total,
                "params_sha256": params_sha256(jax.tree.map(lambda x, k=k: x[k], params)),
            }
            for k, window in enumerate(counters.windows)
        ]
    if len(counters.series) > 1 and not prepared.seeds:
        summary["policies"] = {
            name: {
                "return_mean": window.return_mean,
                "episodes": window.total,
                "params_sha256": params_sha256(params.get(name, {})),
            }
            for name, window in zip(counters.series, counters.windows, strict=True)
        }
    refused = {
        key.removeprefix("refused/"): int(n) for key, n in counters.figures.items() if key.startswith("refused/")
    }
    if refused:
        summary["refused"] = refused
    if counters.streams:
        summary["streams"] = counters.streams
    return summary
