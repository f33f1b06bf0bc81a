"""A worker's pulse: a thread that shows that the process runs, what its sides are in, and where one is stuck.

A process that is stopped, or whose memory is being swapped out, has none; one that compiles has. It also writes down
what the worker's sockets have turned away. No JAX.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Any

from weft.envs.whereabouts import Whereabouts, environment_in
from weft.runtimes.stacks import frame_of, frames, is_compiling, is_computing, stack_of
from weft.runtimes.workers.control.link import Link, LinkClosed
from weft.runtimes.workers.counting.account import Account, Doing, OfSide
from weft.services.family import Family
from weft.streams.tally import TALLY

BEAT_SECONDS = 0.5
"""From one beat to the next."""

EARLY = 0.8
"""The part of the time without progress that a side may have, after which its worker says where it is."""


class Pulse(threading.Thread):
    """Beats for the ``sides`` of a worker. Until ``runs_in`` says otherwise, all of them are in the main thread."""

    def __init__(self, account: Account, link: Link, sides: tuple[int, ...], hang_seconds: float) -> None:
        super().__init__(daemon=True, name="weft-pulse")
        self._link, self._hang_seconds = link, hang_seconds
        self._ended = threading.Event()
        self._family = Family(os.getpid())
        self._counted = (0, 0)  # connections and messages that the account has
        self._sides = [_Beating(side, account.sides[side]) for side in sides]

    def runs_in(self, side: int, thread: int) -> None:
        """A side runs in a thread of its own."""
        for beating in self._sides:
            if beating.side == side:
                beating.thread = thread

    def run(self) -> None:
        """Until the process ends, or ``end`` is called."""
        while not self._ended.is_set():
            for beating in self._sides:
                beating.words[OfSide.BEAT] += 1
            self._count_refused()
            for beating in self._sides:
                if beating.look() > EARLY * self._hang_seconds and not beating.told:
                    beating.told = True
                    self._tell(beating)
            self._tell_family()
            self._ended.wait(BEAT_SECONDS)

    def end(self) -> None:
        """Beat no more, and wait for the thread."""
        self._ended.set()
        self.join()

    def _count_refused(self) -> None:
        """Add what is new to the row of the first side, which has what earlier lives counted."""
        words, (strangers, frames) = self._sides[0].words, self._counted
        self._counted = TALLY.strangers, TALLY.frames
        words[OfSide.STRANGERS] += self._counted[0] - strangers
        words[OfSide.REFUSED] += self._counted[1] - frames

    def _tell_family(self) -> None:
        """What a side has started in a session of its own: the launcher ends it when the worker is gone."""
        group = os.getpgrp()
        with suppress(LinkClosed):
            if left := [process for process in self._family.look() if _group_of(process[0]) != group]:
                self._link.say("family", {"processes": left})

    def _tell(self, beating: _Beating) -> None:
        frame = frame_of(beating.thread)
        print(f"no progress for {beating.idle:.0f} s, and here is where:\n{stack_of(frame)}", file=sys.stderr)
        sys.stderr.flush()
        where = environment_in(frame)
        with suppress(LinkClosed):  # the thread that listens ends the process
            self._link.say("where", {"text": "" if where is None else str(where)})


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


class _Beating:
    """One side as its pulse sees it."""

    def __init__(self, side: int, words: Any) -> None:
        self.side, self.words, self.thread = side, words, threading.main_thread().ident or 0
        self.idle, self.told = 0.0, False  # seconds without progress, as far as this thread saw them pass
        self._where: Whereabouts | None = None
        self._tick = -1

    def look(self) -> float:
        """Write down what the thread is in; how long it has been without progress."""
        frame = frame_of(self.thread)
        where = environment_in(frame)
        if any(is_compiling(other) for other in frames()):  # it may wait for a thread that compiles ahead
            self.words[OfSide.DOING] = Doing.COMPILING
        else:
            self.words[OfSide.DOING] = Doing.COMPUTING if is_computing(frame) else Doing.CALLING
        moved = where is not None and where != self._where
        if moved:
            self.words[OfSide.MOVED] += 1
        tick, self._where = int(self.words[OfSide.TICK]), where
        if moved or tick != self._tick:
            self.idle, self.told, self._tick = 0.0, False, tick
        else:
            self.idle += BEAT_SECONDS
        return self.idle
