"""Weft's ZeroMQ sockets: they know their peers by keys, bound the size of a message, and reconnect quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
import zmq

from weft.streams.door import Door, listen
from weft.streams.endpoints import Address
from weft.streams.keys import Keys
from weft.streams.shared import peer_name, shared

# Plain ints: combining and converting ZeroMQ's flags on each call takes longer than most calls that use them.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)

_RECONNECT, _RECONNECT_MAX = 10, 200  # milliseconds
_KNOCK = 1000  # milliseconds in which the kernel of the other side must have answered
_LINGER = 500  # milliseconds in which a closed socket may still send its last message (Bye)
_HANDSHAKE = 5000  # milliseconds in which a peer must have proved what it is
_ENVELOPE = 64  # bytes that encryption may add to a frame
_WITHOUT_COPY = 1 << 16  # bytes; from this size on, a copy costs more than letting ZeroMQ watch the memory


def dealer(context: zmq.Context[Any], address: Address, keys: Keys | None, max_bytes: int) -> zmq.Socket[bytes]:
    """The side that connects.

    IMMEDIATE: what was queued for a lost connection is lost with it, so nothing stale arrives at a new peer.
    PROBE_ROUTER: each connection, the first and every later one, announces itself to the other side.
    HANDSHAKE_IVL: none, for the kernel keeps the connection until there is an end that takes it.
    ROUTING_ID: where channels share a listener, the name says which it is. CONNECT_TIMEOUT: thousands may knock at
    once there, and the kernel would wait longer from knock to knock.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.PROBE_ROUTER, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 0)
    if shared(address.token) is not None:
        socket.setsockopt(zmq.ROUTING_ID, peer_name(address.token))
        socket.setsockopt(zmq.CONNECT_TIMEOUT, _KNOCK)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret)
    _bound(socket, max_bytes)
    socket.connect(address.endpoint)
    return socket


def router(
    context: zmq.Context[Any], address: Address, keys: Keys | None, max_bytes: int
) -> tuple[zmq.Socket[bytes], Door | None]:
    """The side that binds, and its door where it has keys. The caller closes both, the door first.

    ROUTER_MANDATORY: a send to a peer that has gone fails, instead of vanishing. ZAP_ENFORCE_DOMAIN: nobody comes in
    where nothing answers for them (``door.answering``). ROUTER_HANDOVER: a peer with a name that connects anew takes
    the place of its own lost connection.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
    if shared(address.token) is not None:
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    _bound(socket, max_bytes)
    door = None
    try:
        if keys is not None:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, keys.server_secret)
            socket.setsockopt(zmq.ZAP_DOMAIN, keys.client_public)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            door = Door(context, socket, address, max_bytes)
        listen(socket, address)
    except zmq.ZMQError:
        if door is not None:
            door.close()
        socket.close(linger=0)
        raise
    return socket, door


def _bound(socket: zmq.Socket[bytes], max_bytes: int) -> None:
    """ZeroMQ drops a connection whose frame claims more than ``max_bytes``, and allocates nothing for it.

    The queues have no limit of their own: the protocol's credits limit them.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes + _ENVELOPE)
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
