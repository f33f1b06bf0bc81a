"""What all sides of a worker share: their bell, their words of the account, their way to the launcher. No JAX."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, OfRun, OfSide, OfWire
from weft.streams.bell import Bell

LOOK_SECONDS = 0.5
"""How long a side waits before it looks around and counts a tick, which shows that it is alive."""


Saved: TypeAlias = "tuple[dict[str, Any], list[np.ndarray[Any, Any]]]"
"""A side's part of a checkpoint: JSON, and arrays."""


class Stopped(Exception):
    """The run ends: a side leaves its loop."""


class Running(Protocol):
    """A side at work."""

    @property
    def context(self) -> SideContext:
        """Its place in the run."""
        ...

    def start(self) -> dict[str, Any]:
        """Make what it needs: environments, params. What it returns goes to the launcher."""
        ...

    def run(self) -> None:
        """For ever; ends by an exception."""
        ...

    def close(self) -> None:
        """Free what it holds; may be called twice."""
        ...


@dataclass
class SideContext:
    """A side's place in the run: its bell, the account, the link to the launcher; ``life`` counts its lives."""

    index: int
    name: str
    bell: Bell
    account: Account
    link: Link
    life: int = 0
    words: Any = field(init=False)
    saves: Callable[[], Saved | None] | None = None  # what a checkpoint needs of the side; None while it is not still
    asked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.words = self.account.sides[self.index]
        self.words[OfSide.WAITING] = 0
        self._since = 0  # when what is being done was begun; 0 before the first look around: making things is no work

    @property
    def limit(self) -> int:
        """Learn steps that the launcher has granted."""
        return int(self.account.run[OfRun.LIMIT])

    @property
    def learned(self) -> int:
        """Learn steps that the run has made: the version of the params that were published last."""
        return int(self.account.wires[:, OfWire.VERSION].max())

    def tick(self) -> None:
        """Say that the side has made progress; time until now was work. Raises Stopped where the run is to end."""
        self._count_work(time.perf_counter_ns())
        self.words[OfSide.TICK] += 1
        if self.account.run[OfRun.STOP]:
            raise Stopped

    def ask(self) -> None:
        """The launcher wants to save: answer as soon as the side waits and is still. Called by another thread."""
        self.asked = True
        self.bell.ring()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Wait for the bell, but not for long; time until now was work. Raises Stopped where the run is to end."""
        if self.asked and self.saves is not None and (saved := self.saves()) is not None:
            self.asked = False
            self.link.say("saved", {"side": self.index, **saved[0]}, saved[1])
        began = time.perf_counter_ns()
        words = self.words
        self._count_work(began)
        words[OfSide.WAITING] = 1
        try:
            self.bell.wait(seconds)
        finally:
            now = time.perf_counter_ns()
            words[OfSide.WAITING] = 0
            words[OfSide.WAIT_NS] += now - began
            self._since = now
        self.tick()

    def _count_work(self, now: int) -> None:
        """Called at each tick: a side that never waits must show as busy too."""
        if self._since:
            self.words[OfSide.BUSY_NS] += now - self._since
        self._since = now
