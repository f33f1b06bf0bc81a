"""How Weft sets up its ZeroMQ sockets: loopback, bounded in what they take, and quick to find each other again."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

import numpy as np
import zmq

from weft.core.errors import ChannelError, ConfigError

# Plain ints: to combine and convert ZeroMQ's flags takes longer, each time, than most of what is done with them.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)

_RECONNECT, _RECONNECT_MAX = 10, 200  # milliseconds
_LINGER = 500  # milliseconds in which the last words (Bye) may still leave a socket that is closed
_WITHOUT_COPY = 1 << 16  # bytes from which on a copy costs more than having the memory watched


class Address(NamedTuple):
    """``127.0.0.1:PORT/TOKEN``: where a channel is bound, and which channel one expects to find there."""

    host: str
    port: int
    token: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.token}"

    @property
    def endpoint(self) -> str:
        """As ZeroMQ writes it."""
        return f"tcp://{self.host}:{self.port}"


def check_loopback(host: str, name: str) -> None:
    """Refuse to be reached from other machines."""
    try:
        loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"channel {name!r}: {host!r} is not a loopback address. A wider bind needs a key, and comes with the "
            "cluster runtime; on this machine, leave the address empty."
        )


def parse_address(text: str, name: str) -> Address:
    """An address as ``create`` filled it in."""
    place, _, token = text.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or not token:
        raise ChannelError(f"channel {name!r}: {text!r} is no address of a tcp channel. Use create() first.")
    check_loopback(host, name)
    return Address(host, int(port), token)


def dealer(context: zmq.Context[Any], endpoint: str, max_bytes: int) -> zmq.Socket[bytes]:
    """The side that connects.

    IMMEDIATE: a connection that is lost takes with it what was queued for it, so that nothing stale arrives at a new
    peer. PROBE_ROUTER: each connection, the first and every later one, announces itself to the other side.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.PROBE_ROUTER, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX)
    _bound(socket, max_bytes)
    socket.connect(endpoint)
    return socket


def router(context: zmq.Context[Any], endpoint: str, max_bytes: int) -> zmq.Socket[bytes]:
    """The side that is connected to. ROUTER_MANDATORY: it is told when a peer has gone, instead of sending nowhere."""
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    _bound(socket, max_bytes)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        socket.close(linger=0)
        raise
    return socket


def _bound(socket: zmq.Socket[bytes], max_bytes: int) -> None:
    """A frame that claims more than ``max_bytes`` is not even allocated: ZeroMQ drops its connection.

    Queues have no limit of their own: the credits of the protocol are the limit.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, _LINGER)


def send(
    socket: zmq.Socket[bytes], peer: bytes | None, header: bytes, payload: np.ndarray[Any, Any] | None = None
) -> bool:
    """One message without waiting; False where there is nobody to send it to. ``peer``: which one, of a router.

    A large ``payload`` is not copied: its memory must stay as it is until the other side has answered for it.
    """
    try:
        if peer is not None:
            socket.send(peer, _MORE)
        socket.send(header, _NOBLOCK if payload is None else _MORE)
    except zmq.ZMQError as error:
        if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise
        return False
    if payload is not None:
        socket.send(payload.data, _NOBLOCK, payload.nbytes < _WITHOUT_COPY)
    return True


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """One message without waiting, its frames where ZeroMQ has put them; raises zmq.Again where there is none."""
    frames = [socket.recv(_NOBLOCK, copy=False)]
    while frames[-1].more:
        frames.append(socket.recv(_NOBLOCK, copy=False))
    return frames


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether there is a message; cheaper than to try, and fail."""
    return bool(int(socket.getsockopt(_EVENTS)) & POLLIN)
