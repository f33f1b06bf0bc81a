"""A fragment that looks on, in a worker: takes the newest params when they are due, and tells what it found.

It reads a stream of the newest params and writes none, so nothing waits for it. It has nothing to save: its next life
looks at the params that are the newest then. Of several replicas the first looks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import jax

from weft.runtimes.watcher import Look, Pace, Seen, WatchContext, Watcher, look
from weft.runtimes.workers.lane_checkpoint import to_words
from weft.runtimes.workers.layout.blueprint import Side

if TYPE_CHECKING:
    from weft.runtimes.workers.wiring import Task

PAUSE_SECONDS = 0.1
"""From one look at the version to the next: it must not be woken by each that is published."""


class WatchSide:
    """Runs one fragment; ``run`` returns only by an exception."""

    def __init__(self, task: Task, side: Side) -> None:
        self.context, self._task, self._side = task.context(side), task, side
        (self.name,) = side.fragments
        graph = task.schemas.graph
        self._graph, self._fragment = graph, graph.fragment(self.name)
        self._weights = {s.source: task.weights_of(side, s.source, s.name) for s in graph.into(self.name)}
        self._pace, self._last = Pace(*task.body["pace"]), int(task.body["looked"].get(self.name, 0))
        self._watcher: Watcher | None = None

    def start(self) -> dict[str, Any]:
        """What looks; it may make environments, or begin to with its first look."""
        if self._side.rank == 0:
            body = self._task.body
            context = WatchContext(self._graph.unwatched(), self._task.source, body["seed"], 0, self.context.tick)
            self._watcher = self._fragment.role.code().watcher(self._fragment, context)
        return {}

    def close(self) -> None:
        """Nothing to free."""

    def run(self) -> None:
        """Look when it is due, for ever; raises Stopped at the run's end and what the user's code raises."""
        while True:
            if self._watcher is not None and self._is_due(min(w.published for w in self._weights.values())):
                for weights in self._weights.values():
                    weights.refresh()
                version = min(weights.version for weights in self._weights.values())
                if self._is_due(version):  # else it is on its way
                    self._look(self._watcher, version)
            self.context.wait(0.0)
            time.sleep(PAUSE_SECONDS)

    def _is_due(self, version: int) -> bool:
        return self._pace.is_due(version, self._last, int(self._fragment.code.every))

    def _look(self, watcher: Watcher, version: int) -> None:
        params = {source: jax.device_get(weights.params) for source, weights in self._weights.items()}
        found = look(self._fragment, watcher, Seen(version, self._pace.steps_until(version), params))
        self._last = version
        self._tell(found)

    def _tell(self, found: Look) -> None:
        """To the launcher; the params too where they may be the best."""
        kept = found.seen.params if found.looked.score is not None else {}
        words = {source: to_words(params) for source, params in kept.items()}
        body = {
            "fragment": found.fragment,
            "version": found.seen.version,
            "env_steps": found.seen.env_steps,
            "figures": found.looked.figures,
            "score": found.looked.score,
            "seconds": found.seconds,
            "weights": [[source, len(leaves)] for source, leaves in words.items()],
        }
        self.context.link.say("looked", body, [leaf for leaves in words.values() for leaf in leaves])
