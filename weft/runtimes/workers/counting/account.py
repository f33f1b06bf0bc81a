"""The account: counters in shared memory, which outlive the worker that counts.

Every word has one writer. What a worker has produced, sent and trained can be read after it was killed, so that the
ledger balances whatever happens. For that, words go before deeds: a message is numbered in the account and then sent,
so that a message that was never sent leaves a gap, which its reader counts; a message is accounted for and then
released, so that the next life knows one that comes again by its number, and leaves it alone.
NumPy only: environment workers have it too.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from typing import Any

import numpy as np

from weft.envs.dials import WORDS


class OfRun(IntEnum):
    """Words of the whole run. The launcher writes them."""

    LIMIT = 0  # learn steps granted: what learns, and in lockstep what acts, goes no further
    STOP = 1  # not 0: leave as soon as possible


DIALS = 8
"""The first of the run's words that hold options of the environments, as float64 (``envs/dials.py``)."""


class OfWire(IntEnum):
    """Words of a wire: messages, where nothing else is said."""

    SENT = 0  # numbered by the writer, and sent or about to be
    TAKEN = 1  # accounted for by the reader: used or dropped, or missed by it
    BEGUN = (
        2  # not messages: 1 + the version of the params that the message being built began with; 0: none is (writer)
    )
    AFTER = 3  # not messages: the version of the params that follows what became of the last one taken (reader)
    READER_LIFE = 4  # not messages: which life of the reader serves the wire
    PRODUCED = 5  # environment steps recorded for messages of the wire, sent or not (writer)
    GIVEN_UP = 6  # environment steps of those that will never be sent (writer)
    VERSION = 7  # of the params that were published on it last (writer)
    EXTRA = 8  # of those taken, what a writer had sent beyond its last word when its host was lost (reader)
    WRITER_LIFE = 9  # not messages: the life of the writer that the last one came from (reader)


class OfSide(IntEnum):
    """Words of a side. The side writes them."""

    TICK = 0  # grows whenever it has made progress, or has looked around while waiting
    WAITING = 1  # 1 while it waits for others
    BUSY_NS = 2  # nanoseconds of work
    WAIT_NS = 3  # nanoseconds of waiting
    STEPS = 4  # environment steps that it has made
    BEAT = 5  # grows while its process runs at all; 0 until it does (the worker's pulse)
    DOING = 6  # what its thread is in: a ``Doing`` (the worker's pulse)
    MOVED = 7  # grows while its thread gets from one environment to the next, or replays actions (the worker's pulse)
    JOINT = 14  # odd while it is in a computation with its replicas: twice as many as it has ended, and 1
    STRANGERS = 16  # connections that its worker's sockets turned away (the pulse; a worker's first side has them)
    REFUSED = 17  # messages that they dropped, likewise


class Doing(IntEnum):
    """What a side's thread is in: it decides how long it may go without progress."""

    CALLING = 0  # code of an environment, a map, or anything else on the host
    COMPUTING = 1  # a compiled program, or our own code around it
    COMPILING = 2  # JAX: traced, lowered, compiled


class Fate(IntEnum):
    """Words of a side too: what became of samples there. In environment steps."""

    TRAINED = 8
    STALE = 9  # dropped on arrival: too many versions behind
    DIED = 10  # dropped because a learner died: trained since the last checkpoint, or made by params that are gone
    LOST = 11  # sent or taken by a worker that was killed, and never seen again
    FILTERED = 12  # taken by a map that gave less than it took
    ADDED = 13  # given by a map beyond what it took


DROPPED = (Fate.STALE, Fate.DIED, Fate.LOST, Fate.FILTERED)
"""What became of samples that were not trained on."""

_WORDS = 24  # of each row: three cache lines, so that writers do not disturb each other


class Account:
    """The counters of a run with ``sides`` and ``wires``; rows by index, words by the enums above."""

    copied = False  # whether its words are copies, of the accounts of several hosts, and of different moments

    def __init__(self, sides: int, wires: int, fd: int | None = None) -> None:
        rows = 1 + sides + wires
        size = rows * _WORDS * 8
        if fd is None:
            fd = os.memfd_create("weft-account", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        self.fd = fd
        self._map = mmap.mmap(fd, size)
        words: Any = np.frombuffer(self._map, np.int64).reshape(rows, _WORDS)
        self.run = words[0]
        self.sides = words[1 : 1 + sides]
        self.wires = words[1 + sides :]

    def set_run(self, limit: int | None = None, stop: bool = False) -> None:
        """Set words of the whole run: the learn steps that are granted, and whether it is to end."""
        if limit is not None:
            self.run[OfRun.LIMIT] = limit
        if stop:
            self.run[OfRun.STOP] = 1

    @property
    def dials(self) -> np.ndarray[Any, Any]:
        """``[WORDS]`` float64: where the options of the environments lie. The launcher writes them."""
        words: np.ndarray[Any, Any] = self.run[DIALS:].view(np.float64)[:WORDS]
        return words

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last reference to its words. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
