"""What is stuck: a side without progress. Pure but for the clock it is given.

A side that waits for others looks around and ticks, so that waiting is progress. How long it may be without depends on
what its thread is in, which its worker's pulse says; where the pulse itself stops, the process is frozen.

frozen         no pulse for ``hang_seconds``, 3 s at least: SIGSTOP, a machine that swaps
calling        no progress for ``hang_seconds`` in an environment, a map, or other code of the host
computing      no progress for COMPUTING times that in a compiled program: it may have much to do; told at once
compiling      likewise for COMPILING times that
starting       no progress for START_SECONDS before it is ready; a pulse is none, environments that are brought back are
replicas       one that waits in a joint computation for another that has not come to it is not stuck
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from weft.runtimes.workers.counting.account import Doing, OfSide
from weft.runtimes.workers.layout.blueprint import Blueprint, Side

COMPUTING = 5.0
"""How many times as long a side may take that computes with JAX."""

COMPILING = 60.0
"""How many times as long a side may take that compiles."""

START_SECONDS = 120.0
"""How long a worker may be without progress before it is ready: it loads JAX and makes environments."""

STILL_SECONDS = 3.0
"""A pulse may be late by so much on a busy machine."""

GAP_SECONDS = 1.0
"""The most that counts of the time between two looks: while the launcher itself stood still nobody is blamed."""


class Kind(Enum):
    """In which way a worker is stuck."""

    FROZEN = "its process stands still"
    CALLING = "it is in code of its own"
    COMPUTING = "it computes"
    COMPILING = "it compiles"
    STARTING = "it starts"


class Stuck(NamedTuple):
    """A worker without progress for ``seconds``; not ``final`` where it is given more time, until ``limit``."""

    worker: int
    seconds: float
    kind: Kind
    final: bool
    limit: float


class Watch:
    """Looks at the sides' words of the account; tells of a side's worker once, until that side makes progress."""

    def __init__(self, blueprint: Blueprint, hang_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.blueprint, self.hang_seconds, self.clock = blueprint, hang_seconds, clock
        self._looked = clock()
        self._sides = [_Watched(side) for side in blueprint.sides]

    def stuck(self, words: Any, ready: set[int], alive: set[int]) -> list[Stuck]:
        """The workers of those ``alive`` that are stuck and were not told of before."""
        now = self.clock()
        passed, self._looked = min(now - self._looked, GAP_SECONDS), now
        found: dict[int, Stuck] = {}
        for watched in self._sides:
            side = watched.side
            excused = side.worker not in alive or self._waits_in_joint(side, words)
            watched.look(words[side.index], passed, side.worker in ready, excused)
            stuck = watched.judge(self.hang_seconds)
            if stuck is not None and side.worker in alive and (side.worker not in found or stuck.final):
                found[side.worker] = stuck
        return [found[worker] for worker in sorted(found)]

    def idle(self, seconds: float = 1.5) -> list[tuple[int, Kind]]:
        """The workers that have made no progress for more than ``seconds``, and what they are in."""
        found: dict[int, Kind] = {}
        for watched in self._sides:
            kind, idle, _ = watched.worst(self.hang_seconds)
            if idle > seconds:
                found[watched.side.worker] = kind
        return sorted(found.items(), key=lambda each: each[0])

    def _waits_in_joint(self, side: Side, words: Any) -> bool:
        """Whether it is in a computation that one of its replicas has not come to."""
        mine = int(words[side.index][OfSide.JOINT])
        if not side.together or mine % 2 == 0:
            return False
        return any(int(words[s.index][OfSide.JOINT]) < mine for s in self.blueprint.sides if s.stage == side.stage)


class _Watched:
    """One side: what it has shown, and the seconds since, by what its thread was in."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._shown: tuple[int, ...] = ()
        self._beat = self._told = 0
        self._ready = False
        self._frozen = 0.0
        self._idle = dict.fromkeys(Doing, 0.0)

    def look(self, words: Any, passed: float, ready: bool, excused: bool) -> None:
        """``excused``: whatever it does, it need not make progress now."""
        shown = tuple(int(words[word]) for word in (OfSide.TICK, OfSide.MOVED))
        beat, doing = int(words[OfSide.BEAT]), Doing(int(words[OfSide.DOING]))
        if shown != self._shown or ready != self._ready or excused or beat < self._beat:  # less: another life
            self._shown, self._idle = shown, dict.fromkeys(Doing, 0.0)
            self._told = 0 if beat != self._beat else self._told
        elif self._frozen < STILL_SECONDS:  # else nothing says what it is in
            self._idle[doing] += passed
        if beat != self._beat or beat == 0:
            self._beat, self._frozen = beat, 0.0
        else:
            self._frozen += passed
        self._ready = ready

    def judge(self, hang_seconds: float) -> Stuck | None:
        """What is to be told of it now; None where it is well, or was told before."""
        kind, seconds, limit = self.worst(hang_seconds)
        final = seconds > limit
        level = 2 if final else int(self._ready and seconds > hang_seconds)
        if level <= self._told:
            return None
        self._told = level
        return Stuck(self.side.worker, seconds, kind, final, limit)

    def worst(self, hang_seconds: float) -> tuple[Kind, float, float]:
        """In which way it is stuck, for how long, and for how long it may be."""
        idle = self._idle
        if self._frozen > STILL_SECONDS:
            return Kind.FROZEN, self._frozen, max(hang_seconds, STILL_SECONDS)
        compiling = Kind.COMPILING, idle[Doing.COMPILING], COMPILING * hang_seconds
        if not self._ready:
            rest = Kind.STARTING, idle[Doing.CALLING] + idle[Doing.COMPUTING], START_SECONDS
            return max(compiling, rest, key=lambda each: each[1] / each[2])
        calling = Kind.CALLING, idle[Doing.CALLING], hang_seconds
        computing = Kind.COMPUTING, idle[Doing.COMPUTING], COMPUTING * hang_seconds
        return max(calling, computing, compiling, key=lambda each: each[1] / each[2])
