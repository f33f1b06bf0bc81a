"""Which messages make the next batch. Pure but for the channels it looks at.

In order: one of each lane, in the order of the environments, all made with the current params. Otherwise: one of each
lane that has one, and more of the quick lanes in place of the slow, as long as the slow can still be used for the next
batch. So little of what act makes is thrown away. What is too old on arrival is dropped, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from weft.runtimes.synchrony import Synchrony
from weft.runtimes.workers.arrivals import Arrivals
from weft.runtimes.workers.counting.account import Fate, OfWire
from weft.runtimes.workers.wires import WireReader
from weft.streams.channel import Message

PATIENCE_SECONDS = 2.0
"""How long a batch waits for a lane whose unroll would be too old for the next one: it may be stuck."""


class Collector:
    """Collects one message for each of its wires: a batch of one learner.

    ``newest`` tells the version that was published last, where others publish while this collects.
    """

    def __init__(
        self, readers: list[WireReader], synchrony: Synchrony, newest: Callable[[], int] | None = None
    ) -> None:
        self.readers, self.synchrony, self.pieces = readers, synchrony, len(readers)
        self._newest = newest
        self._batch: list[tuple[WireReader, Message]] = []
        self._dropped: list[tuple[WireReader, Message, Fate | None]] = []  # each behind one of its lane in the batch
        self._turn = 0
        self._waited = 0.0  # when the batch began to wait for a lane that would be too old for the next one
        self.lags: dict[int, int] = {}  # how many messages were trained on with which lag
        # Readers that may have a message, by their number: those that are not in the batch yet, and those that are.
        self._arrivals = Arrivals([reader.reader for reader in readers])
        self._fresh, self._more = set(self._arrivals.silent), set[int]()
        self._absent = np.ones(len(readers), np.bool_)  # not in the batch
        self._rows = np.array([reader.wire.index for reader in readers], np.intp)
        self._max_lags = np.array([reader.wire.max_lag for reader in readers], np.int64)

    def collect(self, version: int) -> list[Message] | None:
        """The batch for an update of params of ``version``; None while it is not complete. Does not wait."""
        complete = self._in_order() if self.synchrony.in_order else self._first_come(version)
        return self.held if complete else None

    @property
    def held(self) -> list[Message]:
        """What the batch has so far."""
        return [message for _, message in self._batch]

    def look(self) -> list[Message]:
        """What is there already for the batch after a complete one: nothing in order, where it is made later."""
        if self.synchrony.in_order:
            return []
        self._sort_arrivals()
        found = (self.readers[number].look() for number in self._fresh | self._more)
        return [message for message in found if message is not None]

    def count_lags(self, version: int) -> None:
        """Count the lags of the batch that is about to be trained on."""
        for _, message in self._batch:
            lag = version - message.stamp.version
            self.lags[lag] = self.lags.get(lag, 0) + 1

    def trained(self, after: int, *, count: bool = True) -> None:
        """The batch that ``collect`` gave was used: its slots go back, and params of version ``after`` follow.

        ``count`` False: another side counts what becomes of it.
        """
        fate = Fate.TRAINED if count else None
        held = [*((reader, message, fate) for reader, message in self._batch), *self._dropped]
        for reader, message, what in sorted(held, key=lambda each: each[1].place):  # a lane's slots go back in order
            reader.take(message, what, after)
        self._batch, self._dropped = [], []
        self._absent[:] = True
        self._fresh, self._more = self._fresh | self._more, set()

    def _in_order(self) -> bool:
        for reader in self.readers[len(self._batch) :]:
            message = reader.receive()
            if message is None:
                return False
            self._batch.append((reader, message))
        return True

    def _first_come(self, version: int) -> bool:
        """One of each lane first; then more of the lanes that have more, in place of lanes that can wait a batch."""
        self._sort_arrivals()
        for number in self._in_turn(self._fresh):
            self._take(number, version)
        if self._more and len(self._batch) < self.pieces and not self._must_wait(version):
            for number in self._in_turn(self._fresh | self._more):
                while len(self._batch) < self.pieces and self._take(number, version):
                    pass
        if len(self._batch) < self.pieces:
            return False
        self._turn = (self._turn + 1) % len(self.readers)
        self._waited = 0.0
        return True

    def _sort_arrivals(self) -> None:
        for number in self._arrivals.new():
            (self._fresh if self._absent[number] else self._more).add(number)

    def _in_turn(self, numbers: set[int]) -> list[int]:
        """In the order of the environments, each time beginning one further."""
        return sorted(numbers, key=lambda number: (number - self._turn) % self.pieces)

    def _take(self, number: int, version: int) -> bool:
        """The wire's next message that is new enough, if there is one and there is room for it."""
        reader = self.readers[number]
        while len(self._batch) < self.pieces:
            message = reader.receive()
            if message is None:
                if number not in self._arrivals.silent:  # it says so when it has one again
                    self._fresh.discard(number)
                    self._more.discard(number)
                return False
            lag = version - message.stamp.version
            if lag < 0 and self._newest is not None:  # perhaps of params that were published since it was asked
                lag = min(0, self._newest() - message.stamp.version)
            if not self.synchrony.too_old(lag, reader.wire.max_lag):
                self._batch.append((reader, message))
                self._absent[number] = False
                self._fresh.discard(number)
                if number in self._arrivals.silent or reader.more:
                    self._more.add(number)
                else:
                    self._more.discard(number)
                return True
            # Below 0: made by params that died with their learner.
            fate = Fate.STALE if lag > 0 else Fate.DIED
            if self._absent[number]:
                reader.take(message, fate)
            else:
                self._dropped.append((reader, message, fate))  # its slot goes back after those before it
        return False

    def _must_wait(self, version: int) -> bool:
        """Whether a lane that is not in the batch would be too old for the next one; patience has an end."""
        begun = self.readers[0].all_wires[self._rows, OfWire.BEGUN] - 1
        late = (begun >= 0) & (version + 1 - begun > self._max_lags) & self._absent
        if not late.any():
            return False
        now = time.monotonic()
        self._waited = self._waited or now
        return now - self._waited < PATIENCE_SECONDS
