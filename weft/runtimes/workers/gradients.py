"""Where gradients leave a grad side, and where they come in at apply: each counted once, whoever is killed.

A gradient carries its unrolls' samples over to apply, which counts them as trained. The unrolls are released before
the gradient is sent, so that no life computes a second gradient of them; a grad side that was killed in between has
lost them, and its next life finds that by counting.
"""

from __future__ import annotations

from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import Account, OfGrad, OfLearner
from weft.runtimes.workers.numbered import receive_numbered
from weft.streams.channel import Arrays, Message, Reader, Stamp, Writer


class GradientWriter:
    """The gradients of one grad side, numbered from 0 over all of its lives. ``steps`` are those of one unroll."""

    def __init__(
        self, writer: Writer, collector: Collector, account: Account, rank: int, steps: int, producer: int, life: int
    ) -> None:
        self._writer, self._collector, self._words = writer, collector, account.learners[rank]
        self._producer, self._life = producer, life
        dropped = sum(int(self._words[word]) for word in OfLearner) // steps
        handed_on = int(self._words[OfGrad.SENT]) * collector.pieces
        self._words[OfLearner.DIED] += (collector.released - dropped - handed_on) * steps

    def reserve(self) -> Arrays | None:
        """Where the next gradient is to be written; None while apply holds all slots."""
        return self._writer.reserve(0)

    def send(self, batch: list[Message]) -> None:
        """Send what was written, the gradient of the collector's ``batch``, whose slots go back."""
        stamps = [message.stamp for message in batch]
        oldest, count = min(s.version for s in stamps), sum(s.count for s in stamps)
        self._collector.trained(count=False)  # apply counts what it applies
        sequence = int(self._words[OfGrad.SENT])
        self._words[OfGrad.SENT] = sequence + 1
        self._writer.commit(Stamp(self._producer, self._life, sequence, oldest, count))


class GradientReader:
    """Where the gradients of the grad side ``rank`` come in at apply."""

    def __init__(self, reader: Reader, account: Account, rank: int) -> None:
        self._reader, self._of_grad = reader, account.learners[rank]
        self._counted = account.learners[-1]  # those before it are the grad sides'

    def receive(self) -> Message | None:
        """The next gradient, if it is there. What a killed grad side numbered and never sent is counted as lost."""
        received = receive_numbered(self._reader, int(self._of_grad[OfGrad.TAKEN]))
        if received is None:
            return None
        message, lost = received
        if lost:
            self._of_grad[OfGrad.TAKEN] += lost
            self._counted[OfLearner.LOST] += lost * message.stamp.count
        return message

    def done(self, message: Message, fate: OfLearner) -> None:
        """Apply is done with a gradient: its samples are counted, and its slot goes back."""
        self._of_grad[OfGrad.TAKEN] += 1
        self._counted[fate] += message.stamp.count
        self._reader.release(message)
