"""What is stuck: a side that makes no progress, and does not wait for others. Pure but for the clock it is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from weft.runtimes.workers.counting.account import OfSide
from weft.runtimes.workers.layout.blueprint import Blueprint

COMPILING = 5.0
"""How many times as long a side that computes with JAX may take: it may be compiling."""


class Watch:
    """Looks at the sides' words of the account; tells of a side's worker once, until that side makes progress."""

    def __init__(self, blueprint: Blueprint, hang_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.blueprint, self.hang_seconds, self.clock = blueprint, hang_seconds, clock
        self._seen: dict[int, tuple[int, float]] = {}
        self._reported: set[int] = set()  # sides

    def stuck(self, words: Any, ready: set[int]) -> list[tuple[int, float]]:
        """Workers that are ``ready`` and stuck, and for how many seconds."""
        now = self.clock()
        found: dict[int, float] = {}
        for side in self.blueprint.sides:
            tick, waiting = int(words[side.index][OfSide.TICK]), bool(words[side.index][OfSide.WAITING])
            before = self._seen.get(side.index)
            if before is None or before[0] != tick or waiting or side.worker not in ready:
                self._seen[side.index] = (tick, now)
                self._reported.discard(side.index)
                continue
            patience = self.hang_seconds * (COMPILING if side.compiles else 1.0)
            if now - before[1] > patience and side.index not in self._reported:
                self._reported.add(side.index)
                found[side.worker] = max(now - before[1], found.get(side.worker, 0.0))
        return sorted(found.items())
