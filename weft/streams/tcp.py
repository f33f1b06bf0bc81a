"""Channels over sockets, for processes that share no memory. ZeroMQ carries messages and reconnects peers.

``tcp`` binds to loopback and lets in only who has the channel's keys; ``ipc`` has no name, so only processes that were
given its descriptor can reach it (``endpoints.py``). All else is the same for both.

Each end works on a ring in its own process, as in memory, and a link in the pump's thread joins it to the other end's
ring. The reader binds and the writer connects. For LATEST, which may have many readers, the writer binds.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

import zmq

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Message
from weft.streams.endpoints import create_ipc, create_tcp, parse_address
from weft.streams.line import Lines, Link
from weft.streams.pump import Attached, LateBell, attach
from weft.streams.ring import Ring
from weft.streams.ring_reader import LatestReader, RingReader
from weft.streams.ring_writer import RingWriter
from weft.streams.tcp_latest import FollowLink, PublishLink
from weft.streams.tcp_ordered import ReceiveLink, SendLink

__all__ = ["create_ipc", "create_tcp", "open_reader", "open_writer"]

_WRITER_LINGER = 1.0  # seconds that a writer's close waits, at most, for its reader to receive what was committed
_READER_LINGER = 0.5  # seconds that a reader's close waits, at most, for its writer to hear of it


class TcpWriter(RingWriter):
    """A writer on a ring in its own process."""

    def __init__(self, ring: Ring, bell: Bell, attached: Attached) -> None:
        super().__init__(ring, bell, [attached.wake()], attached.check)
        self._attached = attached

    def repoint(self, place: str) -> None:
        """The reader is at ``place`` (``HOST:PORT``) now, with the same keys; what it has not released goes there."""
        link = self._attached.link
        assert isinstance(link, SendLink)
        self._attached.call(lambda: link.repoint(place))

    def close(self) -> None:
        """Waits until the reader has received everything, at most ``_WRITER_LINGER`` seconds."""
        self._attached.close(_WRITER_LINGER)
        super().close()


class TcpReader(RingReader):
    """A reader on a ring in its own process. A large message stays in the frame that brought it."""

    def __init__(self, ring: Ring, bell: Bell, attached: Attached, kept: dict[int, zmq.Frame], late: LateBell) -> None:
        self._attached, self._kept, self._layout, self._late = attached, kept, ring.spec.layout, late
        super().__init__(ring, bell, attached.wake(), attached.check)

    def announce(self, told: Callable[[], None]) -> bool:
        """See ``channel.Reader``: it can."""
        self._late.told = told
        told()  # what came before
        return True

    def release(self, message: Message) -> None:
        """See ``channel.Reader``. Frees the frame, unless the caller still holds one of its arrays."""
        super().release(message)
        self._kept.pop(message.place, None)

    def _take(self) -> Message | None:
        message = super()._take()
        if message is None or (frame := self._kept.get(message.place)) is None:
            return message
        return message._replace(arrays=self._layout.views(frame.buffer))

    def close(self) -> None:
        """Waits until the writer, if there is one, knows of it, at most ``_READER_LINGER`` seconds."""
        self._attached.close(_READER_LINGER)
        super().close()


class TcpLatestReader(LatestReader):
    """A reader of LATEST, on a ring in its own process."""

    def __init__(self, ring: Ring, bell: Bell, attached: Attached) -> None:
        super().__init__(ring, bell, attached.check)
        self._attached = attached

    def close(self) -> None:
        """Does not wait: the writer does not depend on this reader."""
        self._attached.close(0.0)
        super().close()


def open_writer(spec: ChannelSpec, bell: Bell, readers: Sequence[Bell]) -> TcpWriter:
    """The writing end. ``readers`` is not used: each reader's own pump rings its bell."""
    address = parse_address(spec.address, spec.name)
    keys = address.keys(spec.name)
    mine, links = _rings(spec)
    late = LateBell(bell)
    if spec.delivery is Delivery.LATEST:
        publishing = PublishLink(links, address.token)
        attached = _attach(spec, late, lambda lines: publishing.bind(lines, address, keys), address.token)
        return TcpWriter(mine, bell, attached)
    sending = SendLink(links, address.token, late)
    attached = _attach(spec, late, lambda lines: sending.connect(lines, address, keys), address.token)
    return TcpWriter(mine, bell, attached)


def open_reader(spec: ChannelSpec, bell: Bell, writer: Bell | None) -> TcpReader | TcpLatestReader:
    """The reading end. ``writer`` is not used: the writer's own pump rings its bell."""
    address = parse_address(spec.address, spec.name)
    keys = address.keys(spec.name)
    mine, links = _rings(spec)
    late = LateBell(bell)
    if spec.delivery is Delivery.LATEST:
        following = FollowLink(links, address.token, late)
        attached = _attach(spec, late, lambda lines: following.connect(lines, address, keys), address.token)
        return TcpLatestReader(mine, bell, attached)
    receiving = ReceiveLink(links, address.token, late)
    attached = _attach(spec, late, lambda lines: receiving.bind(lines, address, keys), address.token)
    return TcpReader(mine, bell, attached, receiving.kept, late)


def _rings(spec: ChannelSpec) -> tuple[Ring, Ring]:
    """Two rings over the same memory: one for the end, one for its link."""
    buffer = mmap.mmap(-1, Ring.nbytes(spec))
    Ring.lay_out(buffer, spec)
    return Ring(buffer, spec), Ring(buffer, spec)


def _attach(spec: ChannelSpec, bell: LateBell, make: Callable[[Lines], Link], token: str) -> Attached:
    try:
        return attach(make, bell, token)
    except (ChannelError, zmq.ZMQError, OSError) as error:
        raise ChannelError(f"channel {spec.name!r}: {spec.address} cannot be used: {error}") from error
