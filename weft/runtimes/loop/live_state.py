"""What ``live.json`` says of a run beyond its newest record: its workers, its streams, its ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Engine, TellsOfWorkers
from weft.services.run_folder import RunFolder
from weft.telemetry.live import NAME, Live


def begin_live(folder: RunFolder, engine: Engine, counters: Callable[[], Counters], total_steps: int) -> Live:
    """A sink that keeps the run's ``live.json``; the engine's workers are in it at once where they change."""

    def facts() -> dict[str, Any]:
        now = counters()
        found: dict[str, Any] = {
            "total_steps": total_steps,
            "samples": now.ledger.to_json(),
            "restarts": now.restarts,
        }
        if isinstance(engine, TellsOfWorkers):
            found["workers"] = [worker._asdict() for worker in engine.workers()]
            found["streams"] = engine.streams_of_late()
        return found

    live = Live(folder.path / NAME, folder.is_held, facts)
    if isinstance(engine, TellsOfWorkers):
        engine.on_workers = live.refresh
    live.refresh()
    return live
