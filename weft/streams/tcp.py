"""Channels over loopback sockets, for processes that share no memory. ZeroMQ carries messages and reconnects peers.

Each end works on a ring in its own process, as in memory, and a link in the pump's thread joins it to the other end's
ring. The reader binds and the writer connects. For LATEST, which may have many readers, the writer binds.
"""

from __future__ import annotations

import mmap
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import zmq

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Message
from weft.streams.pump import Attached, Link, attach
from weft.streams.ring import Ring
from weft.streams.ring_reader import LatestReader, RingReader
from weft.streams.ring_writer import RingWriter
from weft.streams.sockets import Address, check_loopback, parse_address
from weft.streams.tcp_latest import FollowLink, PublishLink
from weft.streams.tcp_ordered import ReceiveLink, SendLink

_WRITER_LINGER = 1.0  # seconds that a writer's close waits, at most, for its reader to receive what was committed
_READER_LINGER = 0.5  # seconds that a reader's close waits, at most, for its writer to hear of it
_BIND_PATIENCE = 3.0  # seconds: a closed or killed end frees its port a little later


class TcpCreated:
    """See ``channel.Created``: keeps a port reserved while ends bind it, die, and bind it again.

    The socket is bound and does not listen. So the kernel gives the port to no other program, and a socket that shares
    the address (SO_REUSEADDR, which ZeroMQ sets) can listen there. Only the ends know how much was committed.
    """

    committed = 0
    fds: tuple[int, ...] = ()

    def __init__(self, spec: ChannelSpec, reserved: socket.socket) -> None:
        self.spec, self._reserved = spec, reserved

    def close(self) -> None:
        """Give the port back; may be called twice."""
        self._reserved.close()


def create(spec: ChannelSpec) -> TcpCreated:
    """Reserve a port on loopback. The spec's address may name the host (``127.0.0.1``); only loopback is accepted."""
    host = spec.address.partition("/")[0].partition(":")[0] or "127.0.0.1"
    check_loopback(host, spec.name)
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
    except OSError as error:
        reserved.close()
        raise ChannelError(f"channel {spec.name!r}: no port on {host} can be had: {error}") from error
    address = Address(host, reserved.getsockname()[1], secrets.token_hex(8))
    return TcpCreated(replace(spec, address=str(address)), reserved)


class TcpWriter(RingWriter):
    """A writer on a ring in its own process."""

    def __init__(self, ring: Ring, bell: Bell, attached: Attached) -> None:
        super().__init__(ring, bell, [attached.wake()], attached.check)
        self._attached = attached

    def close(self) -> None:
        """Waits until the reader has received everything, at most ``_WRITER_LINGER`` seconds."""
        self._attached.close(_WRITER_LINGER)
        super().close()


class TcpReader(RingReader):
    """A reader on a ring in its own process. A large message stays in the frame that brought it."""

    def __init__(self, ring: Ring, bell: Bell, attached: Attached, kept: dict[int, zmq.Frame]) -> None:
        self._attached, self._kept, self._layout = attached, kept, ring.spec.layout
        super().__init__(ring, bell, attached.wake(), attached.check)

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
    mine, links = _rings(spec)
    if spec.delivery is Delivery.LATEST:
        publishing = PublishLink(links, address.token)
        return TcpWriter(mine, bell, _attach(spec, bell, lambda context: publishing.bind(context, address.endpoint)))
    sending = SendLink(links, address.token, bell)
    return TcpWriter(mine, bell, _attach(spec, bell, lambda context: sending.connect(context, address.endpoint)))


def open_reader(spec: ChannelSpec, bell: Bell, writer: Bell | None) -> TcpReader | TcpLatestReader:
    """The reading end. ``writer`` is not used: the writer's own pump rings its bell."""
    address = parse_address(spec.address, spec.name)
    mine, links = _rings(spec)
    if spec.delivery is Delivery.LATEST:
        following = FollowLink(links, address.token, bell)
        attached = _attach(spec, bell, lambda context: following.connect(context, address.endpoint))
        return TcpLatestReader(mine, bell, attached)
    receiving = ReceiveLink(links, address.token, bell)
    attached = _attach(spec, bell, lambda context: receiving.bind(context, address.endpoint))
    return TcpReader(mine, bell, attached, receiving.kept)


def _rings(spec: ChannelSpec) -> tuple[Ring, Ring]:
    """Two rings over the same memory: one for the end, one for its link."""
    buffer = mmap.mmap(-1, Ring.nbytes(spec))
    Ring.lay_out(buffer, spec)
    return Ring(buffer, spec), Ring(buffer, spec)


def _attach(spec: ChannelSpec, bell: Bell, make: Callable[[zmq.Context[Any]], Link]) -> Attached:
    give_up = time.monotonic() + _BIND_PATIENCE
    while True:
        try:
            return attach(make, bell)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or time.monotonic() > give_up:
                raise ChannelError(
                    f"channel {spec.name!r}: {spec.address} cannot be used: {error}. Is the end that was there before "
                    "still alive? There is one owner at a time."
                ) from error
        time.sleep(0.01)
