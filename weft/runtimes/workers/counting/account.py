"""The account: counters in shared memory, which outlive the worker that counts.

Every word has one writer. What a worker has produced, sent and trained can be read after it was killed, so that the
ledger balances whatever happens. For that, words go before deeds: a message is numbered in the account and then sent,
so that one that was never sent leaves a gap which its reader counts; it is accounted for and then released, so that
one that comes again to the next life is known by its number, and left alone. NumPy only: environment workers have it
too.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from typing import Any

import numpy as np


class OfRun(IntEnum):
    """Words of the whole run."""

    LIMIT = 0  # learn steps granted: learn, and in lockstep act, go no further (launcher)
    STOP = 1  # not 0: leave as soon as possible (launcher)
    VERSION = 2  # of the params that were published last (learn 0, or apply)


class OfLane(IntEnum):
    """Words of a lane: the environments that go through act together. Act's, but for RELEASED; environment steps."""

    PRODUCED = 0  # recorded by act
    LOST = 1  # of half-built unrolls that were given up
    COMMITTED = 2  # unrolls, not steps: sent by act
    RELEASED = 3  # unrolls, not steps: trained on or dropped by learn
    ACT_LIFE = 5  # not steps: which life of act serves the lane
    BEGUN = 4  # not steps: 1 + the version of the params that the unroll being built began with; 0: none is


class OfWorker(IntEnum):
    """Words of a side of a worker: which of its fragments runs in which thread is the side's own."""

    TICK = 0  # grows whenever it has got on, or has looked around while waiting
    WAITING = 1  # 1 while it waits for others: then no growth is no fault
    BUSY_NS = 2  # nanoseconds of work
    WAIT_NS = 3  # nanoseconds of waiting


class OfLearner(IntEnum):
    """Words of a learner. In environment steps."""

    TRAINED = 0
    STALE = 1  # dropped on arrival: too many versions behind
    DIED = 2  # dropped because a learner died: trained since the last checkpoint, or made by params that are gone
    LOST = 3  # unrolls that a killed sender had sent, and that never came


class OfGrad(IntEnum):
    """Words of a learner that computes gradients for apply, after those of OfLearner. In gradients."""

    SENT = 4  # numbered by the grad side, and sent or about to be
    TAKEN = 5  # applied or dropped by apply, or missed by it


_WORDS = 8  # of each row: a cache line, so that writers do not disturb each other


class Account:
    """The counters of a run with ``lanes``, ``sides`` and ``learners``; rows by index, words by the enums above."""

    def __init__(self, lanes: int, sides: int, learners: int, fd: int | None = None) -> None:
        rows = 1 + lanes + sides + learners
        size = rows * _WORDS * 8
        if fd is None:
            fd = os.memfd_create("weft-account", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        self.fd = fd
        self._map = mmap.mmap(fd, size)
        words: Any = np.frombuffer(self._map, np.int64).reshape(rows, _WORDS)
        self.run = words[0]
        self.lanes = words[1 : 1 + lanes]
        self.sides = words[1 + lanes : 1 + lanes + sides]
        self.learners = words[1 + lanes + sides :]

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last reference to its words. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
