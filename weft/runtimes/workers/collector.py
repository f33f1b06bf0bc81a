"""Which unrolls make the next batch. Pure but for the channels it looks at.

In lockstep: one of each lane, in the order of the environments, all made with the current params. Otherwise: one of
each lane that has one, and more of the quick in place of the slow, as long as the slow can still be used for the batch
after. So what act makes need not be thrown away; what is too old on arrival all the same is dropped, and counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from weft.runtimes.workers.counting.account import Account, OfLane, OfLearner
from weft.runtimes.workers.numbered import receive_numbered
from weft.streams.channel import Message, Reader

PATIENCE_SECONDS = 2.0
"""How long a batch waits for a lane whose unroll would be too old for the next one: it may be stuck."""


@dataclass
class UnrollReader:
    """Where one lane's unrolls come in."""

    lane: int
    reader: Reader
    expected: int = 0  # the number of the unroll that comes next


class Collector:
    """Collects ``pieces`` unrolls for each batch of one learner."""

    def __init__(
        self, inlets: list[UnrollReader], pieces: int, account: Account, learner: int, *, lockstep: bool, max_lag: int
    ) -> None:
        self.inlets, self.pieces, self.lockstep, self.max_lag = inlets, pieces, lockstep, max_lag
        self._lanes, self._words = account.lanes, account.learners[learner]
        self._batch: list[tuple[UnrollReader, Message]] = []
        self._dropped: list[tuple[UnrollReader, Message, OfLearner | None]] = []
        self._turn = 0
        self._waited = 0.0  # since when a batch has waited for a lane that would be too old for the next
        self.lags: dict[int, int] = {}  # how many unrolls were trained on with which lag
        for inlet in inlets:
            inlet.expected = int(self._lanes[inlet.lane][OfLane.RELEASED])

    def collect(self, version: int) -> list[Message] | None:
        """The batch for an update of params of ``version``; None while it is not complete. Does not wait."""
        complete = self._in_order() if self.lockstep else self._first_come(version)
        if not complete:
            return None
        for _, message in self._batch:
            lag = version - message.stamp.version
            self.lags[lag] = self.lags.get(lag, 0) + 1
        return [message for _, message in self._batch]

    @property
    def released(self) -> int:
        """Unrolls of its lanes that were released, by earlier lives too."""
        return sum(int(self._lanes[inlet.lane][OfLane.RELEASED]) for inlet in self.inlets)

    def trained(self, *, count: bool = True) -> None:
        """The batch that ``collect`` gave was learned from: its slots go back. ``count`` False: another counts it."""
        if count:
            self._words[OfLearner.TRAINED] += sum(message.stamp.count for _, message in self._batch)
        held = [*((inlet, message, None) for inlet, message in self._batch), *self._dropped]
        for inlet, message, fate in sorted(held, key=lambda each: each[1].place):  # a lane's slots go back in order
            self._release(inlet, message, fate)
        self._batch, self._dropped = [], []

    def _in_order(self) -> bool:
        for inlet in self.inlets[len(self._batch) :]:
            message = self._receive(inlet)
            if message is None:
                return False
            self._batch.append((inlet, message))
        return True

    def _first_come(self, version: int) -> bool:
        """One of each lane first; then, of whoever has more, in place of lanes that can be left for the next batch."""
        here = {id(inlet) for inlet, _ in self._batch}
        for inlet in self._in_turn():
            if id(inlet) not in here:
                self._take(inlet, version)
        if len(self._batch) < self.pieces and not self._must_wait(version):
            for inlet in self._in_turn():
                while len(self._batch) < self.pieces and self._take(inlet, version):
                    pass
        if len(self._batch) < self.pieces:
            return False
        self._turn = (self._turn + 1) % len(self.inlets)
        self._waited = 0.0
        return True

    def _in_turn(self) -> list[UnrollReader]:
        return self.inlets[self._turn :] + self.inlets[: self._turn]

    def _take(self, inlet: UnrollReader, version: int) -> bool:
        """The inlet's next unroll that is new enough, if there is one and there is room for it."""
        while len(self._batch) < self.pieces:
            message = self._receive(inlet)
            if message is None:
                return False
            lag = version - message.stamp.version
            if 0 <= lag <= self.max_lag:
                self._batch.append((inlet, message))
                return True
            # Below 0: made by params that died with their learner.
            fate = OfLearner.STALE if lag > 0 else OfLearner.DIED
            if any(other is inlet for other, _ in self._batch):
                self._dropped.append((inlet, message, fate))  # its slot goes back after those before it
            else:
                self._release(inlet, message, fate)
        return False

    def _must_wait(self, version: int) -> bool:
        """Whether a lane that is not in the batch would be too old for the next one; patience has an end."""
        here = {inlet.lane for inlet, _ in self._batch}
        begun = [int(self._lanes[inlet.lane][OfLane.BEGUN]) - 1 for inlet in self.inlets if inlet.lane not in here]
        if not any(then >= 0 and version + 1 - then > self.max_lag for then in begun):
            return False
        now = time.monotonic()
        self._waited = self._waited or now
        return now - self._waited < PATIENCE_SECONDS

    def _receive(self, inlet: UnrollReader) -> Message | None:
        """The lane's next unroll. What a sender took with it when it was killed is counted as lost."""
        received = receive_numbered(inlet.reader, inlet.expected)
        if received is None:
            return None
        message, lost = received
        if lost:
            self._lanes[inlet.lane][OfLane.RELEASED] += lost
            self._words[OfLearner.LOST] += lost * message.stamp.count
        inlet.expected = message.stamp.sequence + 1
        return message

    def _release(self, inlet: UnrollReader, message: Message, fate: OfLearner | None) -> None:
        self._lanes[inlet.lane][OfLane.RELEASED] += 1
        if fate is not None:
            self._words[fate] += message.stamp.count
        inlet.reader.release(message)
