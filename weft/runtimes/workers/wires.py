"""The ends of a wire that the ledger counts: messages known by their numbers, each accounted for once.

Words go before deeds (``counting/account.py`` says why): a message is numbered and then sent, accounted for and then
released. So a worker that is killed in between leaves a number that never comes, which the reader counts as lost, or a
message that comes again, which the reader knows and leaves alone.

A writer whose whole host is gone may have sent more than its host had told of: its next life, elsewhere, then begins
with numbers that have come already. The reader sees it by the life in the stamp, and counts those messages as EXTRA:
sent and taken, although no word of their writer says so.
"""

from __future__ import annotations

from weft.core.errors import ChannelClosed
from weft.runtimes.workers.counting.account import Account, Fate, OfWire
from weft.runtimes.workers.layout.blueprint import Wire
from weft.streams.channel import Arrays, Message, Reader, Stamp, Writer


class WireReader:
    """Where one wire's messages come in at the side ``side``."""

    def __init__(self, wire: Wire, reader: Reader, account: Account, side: int, life: int = 0) -> None:
        self.wire, self.reader = wire, reader
        self.words, self.all_wires = account.wires[wire.index], account.wires
        self._fates = account.sides[side]
        self.words[OfWire.READER_LIFE] = life
        # The number of the message that comes next, as its writer numbers them.
        self.expected = int(self.words[OfWire.TAKEN]) - int(self.words[OfWire.EXTRA])
        self._life = int(self.words[OfWire.WRITER_LIFE])
        self._next: Message | None = None  # which was looked at

    def receive(self) -> Message | None:
        """The next message, if it is there. What a killed sender numbered and never sent is counted as lost.

        Messages below the expected number were accounted for by an earlier life, which was killed before it released
        them. Those of a life of the writer that has a successor are late, and left alone too.
        """
        message, self._next = self._coming(), None
        while message is not None and not self._is_new(message.stamp):
            self.reader.release(message)
            message = self.reader.receive(0)
        if message is None:
            return None
        lost = message.stamp.sequence - self.expected
        if lost:
            self.words[OfWire.TAKEN] += lost
            self._fates[Fate.LOST] += lost * self.wire.samples
        self.expected = message.stamp.sequence + 1
        return message

    def look(self) -> Message | None:
        """What comes next, if it is there already: mostly what ``receive`` will give. Nothing is accounted for.

        None also where the writer has closed: ``receive`` raises that, where a side can be stopped; a look can be in
        the middle of a learn call.
        """
        try:
            return self._coming()
        except ChannelClosed:
            return None

    def _coming(self) -> Message | None:
        if self._next is None:
            self._next = self.reader.receive(0)
        return self._next

    @property
    def more(self) -> bool:
        """Whether something else has come."""
        return self._next is not None or self.reader.unread > 0

    def _is_new(self, stamp: Stamp) -> bool:
        """Whether a message is to be taken; the first of a new life of the writer says where its numbers go on."""
        if stamp.incarnation > self._life:
            if stamp.sequence < self.expected:
                self.words[OfWire.EXTRA] += self.expected - stamp.sequence
                self.expected = stamp.sequence
            self._life = stamp.incarnation
            self.words[OfWire.WRITER_LIFE] = stamp.incarnation  # after EXTRA: a reader that is killed here adds it once
        return stamp.incarnation == self._life and stamp.sequence >= self.expected

    def account(self, fate: Fate | None = None, after: int | None = None) -> None:
        """Account for the oldest message that was received and not accounted for, before it is released.

        ``fate`` None: another counts what becomes of it. ``after``: the version of the params that follows.
        """
        if after is not None:
            self.tell(after)
        self.words[OfWire.TAKEN] += 1
        if fate is not None:
            self._fates[fate] += self.wire.samples

    def tell(self, after: int) -> None:
        """Say which version of the params follows, to a writer in this account and to one of another host."""
        self.words[OfWire.AFTER] = after
        self.reader.note(after)

    def release(self, message: Message) -> None:
        """Give the slot back."""
        self.reader.release(message)

    def take(self, message: Message, fate: Fate | None, after: int | None = None) -> None:
        """Account for a message, and release it."""
        self.account(fate, after)
        self.release(message)


class WireWriter:
    """Where one wire's messages leave, numbered over all lives of the writer."""

    def __init__(self, wire: Wire, writer: Writer, account: Account, life: int) -> None:
        self.wire, self.writer, self.life = wire, writer, life
        self.words = account.wires[wire.index]
        # A number whose message was never sent stays a gap; and a socket knows only what it has sent itself.
        self._earlier = max(int(self.words[OfWire.SENT]) - writer.committed, 0)
        self.words[OfWire.SENT] = self.sequence
        self.words[OfWire.BEGUN] = 0

    @property
    def sequence(self) -> int:
        """The number of the message that comes next, from 0; earlier lives' count."""
        return self._earlier + self.writer.committed

    def begin(self, version: int) -> None:
        """A message is being made, from params of ``version``."""
        self.words[OfWire.BEGUN] = 1 + version

    def reserve(self) -> Arrays | None:
        """Where the next message is to be written; None while the reader holds all slots."""
        return self.writer.reserve(0)

    def commit(self, version: int, count: int | None = None, tag: int = 0) -> None:
        """Send what was written; ``version`` is the oldest of the params that made it.

        ``count``: of what a message holds, unless it is samples; ``tag``: whatever the reader is to know besides.
        """
        producer = self.wire.lane if self.wire.lane >= 0 else self.wire.writer
        stamp = Stamp(producer, self.life, self.sequence, version, self.wire.samples if count is None else count, tag)
        self.words[OfWire.BEGUN] = 0
        self.words[OfWire.SENT] = stamp.sequence + 1
        self.writer.commit(stamp)

    @property
    def after(self) -> int:
        """The version of the params that follows what became of the last message that was released.

        It comes with the release; before the first one, it is what the account began with.
        """
        noted = self.writer.noted
        return noted if noted >= 0 else int(self.words[OfWire.AFTER])

    @property
    def released(self) -> int:
        """The messages that the reader has released, by their numbers: all below this one."""
        return self.sequence - self.writer.unreleased
