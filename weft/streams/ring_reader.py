"""The reading ends of a ring: RingReader reads in order and releases slots; LatestReader reads only the newest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from weft.core.errors import ChannelClosed, ChannelError
from weft.streams.bell import Bell, Rings
from weft.streams.channel import Message, Stamp
from weft.streams.ring import COMMITTED, CURSOR, NOTE, READER_CLOSED, RELEASED, WRITER_CLOSED, Ring


class _Receiving(ABC):
    """Common to both readers: waiting, and noticing that the writer closed."""

    def __init__(self, ring: Ring, bell: Bell, fault: Callable[[], None] | None) -> None:
        self._ring, self._bell, self._fault = ring, bell, fault
        self._name, self._closed = ring.spec.name, False

    def receive(self, timeout: float | None = None) -> Message | None:
        """See ``channel.Reader``."""
        return self._look() if timeout == 0 else self._bell.wait_for(self._look, timeout)

    def _look(self) -> Message | None:
        if self._closed:
            raise ChannelClosed(f"channel {self._name!r}: this reader was closed")
        if self._fault is not None:
            self._fault()
        # Read this before looking: messages committed before the close must still be received.
        over = self._ring.words[WRITER_CLOSED]
        message = self._take()
        if message is None and over:
            raise ChannelClosed(f"channel {self._name!r}: its writer was closed, and everything has been received")
        return message

    def announce(self, told: Callable[[], None]) -> bool:
        """See ``channel.Reader``: memory tells nobody what is written to it."""
        return False

    @abstractmethod
    def _take(self) -> Message | None:
        """The next message if there is one: in order, or the newest."""


class RingReader(_Receiving):
    """Reads in order and releases slots. Owns ``ring``, and closes it; a release rings ``writer``.

    Messages stay in their slots, which the writer does not touch until they are released.
    """

    def __init__(self, ring: Ring, bell: Bell, writer: Rings | None, fault: Callable[[], None] | None = None) -> None:
        super().__init__(ring, bell, fault)
        self._writer = writer
        self._held: deque[int] = deque()  # places received and not yet released
        # Messages that an earlier reader received and did not release are received again.
        ring.words[CURSOR] = ring.released
        ring.words[READER_CLOSED] = 0
        self._ring_writer()  # an earlier reader may have died between its release and its ring

    def receive(self, timeout: float | None = None) -> Message | None:
        """See ``channel.Reader``."""
        if timeout is None and len(self._held) == self._ring.capacity and self._look() is None:
            raise ChannelError(
                f"channel {self._name!r}: all of its {self._ring.capacity} messages are held by this reader, which "
                "would wait for ever. Release one, or ask for a larger capacity."
            )
        return super().receive(timeout)

    def release(self, message: Message) -> None:
        """See ``channel.Reader``."""
        if self._closed:
            return
        if not self._held or self._held[0] != message.place:
            expected = f"place {self._held[0]} is next" if self._held else "nothing is held"
            raise ChannelError(
                f"channel {self._name!r}: release of place {message.place}, and {expected}. "
                "Release in the order received."
            )
        self._ring.words[RELEASED] = self._held.popleft() + 1
        self._ring_writer()

    def note(self, number: int) -> None:
        """See ``channel.Reader``."""
        if not self._closed:
            self._ring.words[NOTE] = number + 1

    @property
    def unread(self) -> int:
        """See ``channel.Reader``; 0 after close."""
        if self._closed:
            return 0
        return max(0, self._ring.words[COMMITTED] - self._ring.words[CURSOR])

    def close(self) -> None:
        """See ``channel.Reader``."""
        if self._closed:
            return
        self._closed = True
        self._ring.words[READER_CLOSED] = 1
        self._ring_writer()
        self._ring.close()

    def _take(self) -> Message | None:
        ring, words = self._ring, self._ring.words
        # Read committed first: over a socket, the first connection sets both to the writer's place, and cursor first.
        committed, place = words[COMMITTED], words[CURSOR]
        if place >= committed:
            return None
        words[CURSOR] = place + 1
        self._held.append(place)
        return Message(ring.stamp(place), ring.arrays(place), place)

    def _ring_writer(self) -> None:
        if self._writer is not None:
            self._writer.ring()


class LatestReader(_Receiving):
    """Reads the newest message that it has not seen. It stores nothing in the ring, so there may be many of them."""

    def __init__(self, ring: Ring, bell: Bell, fault: Callable[[], None] | None = None) -> None:
        super().__init__(ring, bell, fault)
        self._seen = 0  # the place after the newest one received
        self._buffer = ring.spec.layout.buffer()

    def release(self, message: Message) -> None:
        """Does nothing: there is no slot to give back."""

    def note(self, number: int) -> None:
        """Does nothing: nothing goes back to the writer."""

    @property
    def unread(self) -> int:
        """1 if there is a newer message than the last one received, else 0; 0 after close."""
        return 0 if self._closed else int(self._ring.words[COMMITTED] > self._seen)

    def close(self) -> None:
        """Let the memory go. The writer does not notice."""
        if not self._closed:
            self._closed = True
            self._ring.close()

    def _take(self) -> Message | None:
        ring = self._ring
        while (committed := ring.words[COMMITTED]) > self._seen:
            # None means that the writer has reached this slot again, so there is a newer message by now.
            stamp: Stamp | None = ring.copy_whole(committed - 1, self._buffer.data)
            if stamp is not None:
                self._seen = committed
                return Message(stamp, self._buffer.arrays, committed - 1)
        return None
