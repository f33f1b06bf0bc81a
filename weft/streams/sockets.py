"""Weft's ZeroMQ sockets: they bind to loopback, bound the size of a message, and reconnect quickly."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

import numpy as np
import zmq

from weft.core.errors import ChannelError, ConfigError

# Plain ints: combining and converting ZeroMQ's flags on each call takes longer than most calls that use them.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)

_RECONNECT, _RECONNECT_MAX = 10, 200  # milliseconds
_LINGER = 500  # milliseconds in which a closed socket may still send its last message (Bye)
_WITHOUT_COPY = 1 << 16  # bytes; from this size on, a copy costs more than letting ZeroMQ watch the memory


class Address(NamedTuple):
    """``127.0.0.1:PORT/TOKEN``: where a channel is bound, and a token that identifies the channel."""

    host: str
    port: int
    token: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.token}"

    @property
    def endpoint(self) -> str:
        """The address as ZeroMQ writes it."""
        return f"tcp://{self.host}:{self.port}"


def check_loopback(host: str, name: str) -> None:
    """Refuse a host that other machines could reach."""
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
    """Read an address that ``create`` filled in."""
    place, _, token = text.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or not token:
        raise ChannelError(f"channel {name!r}: {text!r} is no address of a tcp channel. Use create() first.")
    check_loopback(host, name)
    return Address(host, int(port), token)


def dealer(context: zmq.Context[Any], endpoint: str, max_bytes: int) -> zmq.Socket[bytes]:
    """The side that connects.

    IMMEDIATE: what was queued for a lost connection is lost with it, so nothing stale arrives at a new peer.
    PROBE_ROUTER: each connection, the first and every later one, announces itself to the other side.
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
    """The side that binds. ROUTER_MANDATORY: a send to a peer that has gone fails, instead of vanishing."""
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
    """ZeroMQ drops a connection whose frame claims more than ``max_bytes``, and allocates nothing for it.

    The queues have no limit of their own: the protocol's credits limit them.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, _LINGER)


def send(
    socket: zmq.Socket[bytes], peer: bytes | None, header: bytes, payload: np.ndarray[Any, Any] | None = None
) -> bool:
    """Send one message without waiting; False if no peer is connected. ``peer``: the receiver, for a router.

    A large ``payload`` is not copied: its memory must not change until the other side has acknowledged it.
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
    """Receive one message without waiting, as ZeroMQ's own frames; raises zmq.Again if there is none."""
    frames = [socket.recv(_NOBLOCK, copy=False)]
    while frames[-1].more:
        frames.append(socket.recv(_NOBLOCK, copy=False))
    return frames


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether there is a message; cheaper than a receive that fails."""
    return bool(int(socket.getsockopt(_EVENTS)) & POLLIN)
