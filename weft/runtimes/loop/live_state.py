"""What ``live.json`` says of a run beyond its newest record: its workers, its streams, its ledger."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Engine, TellsOfWorkers
from weft.runtimes.prepare.config import Prepared
from weft.services.run_folder import RunFolder
from weft.telemetry.live import NAME, Live

_PACKAGES = ("weft", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium")


def begin_live(
    folder: RunFolder,
    engine: Engine,
    counters: Callable[[], Counters],
    prepared: Prepared,
    hosts: Callable[[], list[dict[str, Any]]] = list,
) -> Live:
    """A sink that keeps the run's ``live.json``; the engine's workers are in it at once where they change.

    ``hosts`` gives those of a cluster: their names, and workers that they have room for.
    """
    machine = machine_of(prepared)

    def facts() -> dict[str, Any]:
        now = counters()
        found: dict[str, Any] = {
            "total_steps": prepared.env_steps,
            "machine": machine,
            "samples": now.ledger.to_json(),
            "restarts": now.restarts,
        }
        if isinstance(engine, TellsOfWorkers):
            found["workers"] = [worker._asdict() for worker in engine.workers()]
            found["streams"] = engine.streams_of_late()
            found["hosts"] = hosts()
        return found

    live = Live(folder.path / NAME, folder.is_held, facts)
    if isinstance(engine, TellsOfWorkers):
        engine.on_workers = live.refresh
    live.refresh()
    return live


def machine_of(prepared: Prepared) -> dict[str, Any]:
    """Where a run runs, and with which versions of what: JSON."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # from a checkout that is not installed
            continue
    machine = prepared.machine
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": machine.cores,
        "memory_bytes": machine.memory,
        "accelerators": machine.gpus,
        "versions": found,
    }


def title_of(prepared: Prepared) -> str:
    """What is above a run on the screen."""
    return f"{prepared.name} · {prepared.source.name} · {prepared.plan} · seed {prepared.seed}"
