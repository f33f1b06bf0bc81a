"""A channel in plain Python memory that does what it is told: for testing what receives, without processes or sockets.

    created = registry.create(ChannelSpec(..., scheme="fake"))
    fake.of(created.spec).lose(3)             place 3 never arrives
    fake.of(created.spec).duplicate(5)        place 5 arrives twice
    fake.of(created.spec).delay(7, by=2)      place 7 arrives after place 9

Told nothing, it keeps the contract of channels. Its ends may be used by different threads of one process.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ChannelClosed, ChannelError, SchemaMismatch
from weft.streams.bell import Bell
from weft.streams.channel import Arrays, ChannelSpec, Message, Stamp
from weft.streams.schema import check, difference

_TABLE: dict[str, FakeChannel] = {}
_NUMBERS = itertools.count()


class FakeChannel:
    """See ``channel.Created``; its ends, and what it was told to do wrong."""

    fds: tuple[int, ...] = ()

    def __init__(self, spec: ChannelSpec) -> None:
        self.spec = spec
        self.committed = self.released = self.dropped = self.lost = 0
        self.lock = threading.Lock()
        self.arrived: list[Message] = []  # in the order of arrival; the first ``held`` are with the reader
        self.held = 0
        self.writer_closed = self.reader_closed = False
        self._delayed: list[tuple[int, Message]] = []  # arrives once so many were committed
        self._lose: set[int] = set()
        self._duplicate: set[int] = set()
        self._delay: dict[int, int] = {}

    @property
    def unreleased(self) -> int:
        """Messages on their way, or held by the reader; 0 for LATEST."""
        if self.spec.delivery is Delivery.LATEST:
            return 0
        return self.committed - self.released - self.dropped - self.lost

    def lose(self, *places: int) -> None:
        """These places never arrive; they are counted by ``lost``, and take no room."""
        self._lose.update(places)

    def duplicate(self, *places: int) -> None:
        """These places arrive twice, one after the other."""
        self._duplicate.update(places)

    def delay(self, place: int, by: int) -> None:
        """This place arrives after ``by`` later ones; if the writer closes before that, then."""
        self._delay[place] = by

    def commit(self, stamp: Stamp, arrays: Arrays) -> None:
        """A message leaves the writer; called with the lock held."""
        message = Message(stamp, arrays, self.committed)
        self.committed += 1
        if message.place in self._lose:
            self.lost += 1
        elif message.place in self._delay:
            self._delayed.append((self.committed + self._delay[message.place], message))
        else:
            self._arrive(message)
        self.arrive_delayed(self.committed)

    def arrive_delayed(self, committed: float) -> None:
        """Let in what was delayed until so many were committed; called with the lock held."""
        due = [message for when, message in self._delayed if when <= committed]
        self._delayed = [(when, message) for when, message in self._delayed if when > committed]
        for message in due:
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        if self.spec.delivery is Delivery.LATEST:
            self.arrived.clear()
        self.arrived.append(message)
        if message.place in self._duplicate:
            self.arrived.append(self.copy(message))
        if self.spec.delivery is Delivery.DROP_OLDEST:
            while len(self.arrived) - self.held > self.spec.capacity:
                del self.arrived[self.held]
                self.dropped += 1

    def copy(self, message: Message) -> Message:
        """The same message in other memory."""
        arrays = self.spec.layout.buffer().arrays
        for into, array in zip(arrays, message.arrays, strict=True):
            np.copyto(into, array)
        return Message(message.stamp, arrays, message.place)

    def close(self) -> None:
        """Forget the channel: its ends stay usable, and no new ones can be opened. May be called twice."""
        _TABLE.pop(self.spec.address, None)


class FakeWriter:
    """See ``channel.Writer``."""

    def __init__(self, channel: FakeChannel, bell: Bell, readers: Sequence[Bell]) -> None:
        self._channel, self._bell, self._readers = channel, bell, tuple(readers)
        self._reserved: Arrays | None = None
        self._closed = channel.writer_closed = False

    def reserve(self, timeout: float | None = None) -> Arrays | None:
        """See ``channel.Writer``."""
        if self._reserved is None and self._bell.wait_for(self._ready, timeout):
            self._reserved = self._channel.spec.layout.buffer().arrays
        return self._reserved

    def commit(self, stamp: Stamp) -> None:
        """See ``channel.Writer``."""
        if self._reserved is None:
            raise ChannelError(f"channel {self._channel.spec.name!r}: commit without reserve")
        with self._channel.lock:
            self._channel.commit(stamp, self._reserved)
        self._reserved = None
        self._ring_readers()

    def send(self, arrays: Sequence[np.ndarray[Any, Any]], stamp: Stamp, timeout: float | None = None) -> bool:
        """See ``channel.Writer``."""
        check(arrays, self._channel.spec.leaves, f"channel {self._channel.spec.name!r}")
        slot = self.reserve(timeout)
        if slot is None:
            return False
        for into, array in zip(slot, arrays, strict=True):
            np.copyto(into, array)
        self.commit(stamp)
        return True

    @property
    def unreleased(self) -> int:
        """See ``channel.Writer``."""
        return self._channel.unreleased

    @property
    def dropped(self) -> int:
        """See ``channel.Writer``."""
        return self._channel.dropped

    def close(self) -> None:
        """See ``channel.Writer``."""
        if self._closed:
            return
        self._closed, self._reserved = True, None
        with self._channel.lock:
            self._channel.arrive_delayed(float("inf"))
            self._channel.writer_closed = True
        self._ring_readers()

    def _ready(self) -> bool | None:
        channel = self._channel
        if self._closed:
            raise ChannelClosed(f"channel {channel.spec.name!r}: this writer was closed")
        if channel.reader_closed:
            raise ChannelClosed(f"channel {channel.spec.name!r}: its reader was closed, and takes no more")
        return channel.spec.delivery is not Delivery.BLOCK or channel.unreleased < channel.spec.capacity or None

    def _ring_readers(self) -> None:
        for bell in self._readers:
            bell.ring()


class FakeReader:
    """See ``channel.Reader``."""

    def __init__(self, channel: FakeChannel, bell: Bell, writer: Bell | None) -> None:
        self._channel, self._bell, self._writer = channel, bell, writer
        self._closed, self._seen = False, -1
        self._latest = channel.spec.delivery is Delivery.LATEST
        self._releasing: deque[Message] = deque()
        if not self._latest:
            with channel.lock:
                channel.held, channel.reader_closed = 0, False

    def receive(self, timeout: float | None = None) -> Message | None:
        """See ``channel.Reader``."""
        full = len(self._releasing) == self._channel.spec.capacity
        if timeout is None and full and self._look() is None:
            raise ChannelError(f"channel {self._channel.spec.name!r}: all of its messages are held by this reader")
        return self._bell.wait_for(self._look, timeout)

    def release(self, message: Message) -> None:
        """See ``channel.Reader``."""
        if self._latest or self._closed:
            return
        channel = self._channel
        if not self._releasing or self._releasing[0].place != message.place:
            raise ChannelError(f"channel {channel.spec.name!r}: release of place {message.place}, which is not next")
        with channel.lock:
            self._releasing.popleft()
            channel.arrived.pop(0)
            channel.held -= 1
            again = any(other.place == message.place for other in channel.arrived)
            channel.released += not again
        if self._writer is not None:
            self._writer.ring()

    @property
    def unread(self) -> int:
        """See ``channel.Reader``."""
        channel = self._channel
        if self._latest:
            return int(bool(channel.arrived) and channel.arrived[-1].place > self._seen)
        return 0 if self._closed else len(channel.arrived) - channel.held

    def close(self) -> None:
        """See ``channel.Reader``."""
        if self._closed:
            return
        self._closed = True
        if not self._latest:
            self._channel.reader_closed = True
            if self._writer is not None:
                self._writer.ring()

    def _look(self) -> Message | None:
        channel = self._channel
        if self._closed:
            raise ChannelClosed(f"channel {channel.spec.name!r}: this reader was closed")
        with channel.lock:
            message = self._newest() if self._latest else self._next()
            over = message is None and channel.writer_closed and not self.unread
        if over:
            raise ChannelClosed(f"channel {channel.spec.name!r}: its writer was closed, and everything was received")
        return message

    def _newest(self) -> Message | None:
        if not self.unread:
            return None
        message = self._channel.arrived[-1]
        self._seen = message.place
        return self._channel.copy(message)

    def _next(self) -> Message | None:
        channel = self._channel
        if not self.unread or len(self._releasing) == channel.spec.capacity:
            return None
        message = channel.arrived[channel.held]
        channel.held += 1
        self._releasing.append(message)
        return message


def create(spec: ChannelSpec) -> FakeChannel:
    """A channel in this process, to be told what to do wrong."""
    addressed = replace(spec, address=f"fake:{next(_NUMBERS)}")
    channel = _TABLE[addressed.address] = FakeChannel(addressed)
    return channel


def of(spec: ChannelSpec) -> FakeChannel:
    """The channel that a spec is the address of."""
    if spec.address not in _TABLE:
        raise ChannelError(f"channel {spec.name!r}: there is no fake channel at {spec.address!r}. Use create() first.")
    channel = _TABLE[spec.address]
    if words := difference(channel.spec.leaves, spec.leaves):
        raise SchemaMismatch(f"channel {spec.name!r}: it was made for other leaves: {words}")
    return channel


def open_writer(spec: ChannelSpec, bell: Bell, readers: Sequence[Bell]) -> FakeWriter:
    """The writing end."""
    return FakeWriter(of(spec), bell, readers)


def open_reader(spec: ChannelSpec, bell: Bell, writer: Bell | None) -> FakeReader:
    """The reading end."""
    return FakeReader(of(spec), bell, writer)
