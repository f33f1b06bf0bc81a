"""Who may come in at a tcp channel: the one that has the channel's client key; all others cost a count.

ZeroMQ's own thread does the handshake, and tells a peer nothing before it is over. It asks ``answer`` whether a key
is the right one, and ``Door`` hears from it who came and who left.
"""

from __future__ import annotations

import ctypes
import os
import socket as sockets
import struct
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils import z85

from weft.streams.endpoints import Address
from weft.streams.shared import shared
from weft.streams.tally import TALLY

_ZAP = "inproc://zeromq.zap.01"  # where libzmq asks, by its own rule (RFC 27)
_EVENTS = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
_EVENT = struct.Struct("=HI")  # libzmq's event and its value, here a descriptor

_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # Linux's SO_ATTACH_FILTER and SO_DETACH_FILTER
_DROP_ALL = struct.pack("@HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes of the packet

_MOST = 64  # connections that may be in their handshake at a time
_MOST_OF_MANY = 1024  # the same where channels share a listener
_MEMORY = 1 << 25  # bytes that they may fill together, before it is known who they are


def answering(context: zmq.Context[Any]) -> zmq.Socket[bytes]:
    """The socket on which ZeroMQ asks about peers; to be there before a socket with keys binds."""
    socket: zmq.Socket[bytes] = context.socket(zmq.REP)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(_ZAP)
    return socket


def answer(socket: zmq.Socket[bytes]) -> None:
    """Answer one question. The domain that the bound socket was given is the key that it admits."""
    version, request, domain, _, _, mechanism, *credentials = socket.recv_multipart()
    admitted = mechanism == b"CURVE" and credentials == [z85.decode(domain)]
    socket.send_multipart([version, request, b"200" if admitted else b"400", b"", b"", b""])


class Door:
    """Watches a bound socket with keys. Used by the pump's thread only.

    While too many connections are in their handshake the kernel drops what knocks (a peer's kernel knocks again a
    second later), so that strangers hold few descriptors and little memory. Peers that are in do not notice.
    """

    def __init__(self, context: zmq.Context[Any], socket: zmq.Socket[bytes], address: Address, max_bytes: int) -> None:
        self._socket, self._listener = socket, address.listener
        awaited = 1 if (sharing := shared(address.token)) is None else sharing.channels
        # Where thousands are awaited they may come at once: strangers then cost up to an eighth of what those may.
        self._most = max(2, min(_MOST, _MEMORY // max_bytes), min(_MOST_OF_MANY, awaited // 8))
        self._undecided: set[int] = set()  # descriptors of connections that have brought no message
        self.shut = False
        place = f"inproc://door-{address.token}-{id(self)}"
        socket.monitor(place, _EVENTS)
        self.monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)  # else ZeroMQ's thread would wait for this one
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(place)
        self.fd = int(self.monitor.getsockopt(zmq.FD))
        self._let_in(True)  # the end before this one may have died with the door shut

    @property
    def undecided(self) -> int:
        """Connections that have not been admitted yet."""
        return len(self._undecided)

    def admit(self, frame: zmq.Frame) -> None:
        """A message came: the connection that brought it is past its handshake, so it is no stranger's."""
        self.look()  # it may have come a moment ago
        self._undecided.discard(int(frame.get(zmq.SRCFD)))

    def look(self) -> None:
        """Hear who came and who left, and count those that left before they were admitted."""
        while int(self.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event, descriptor = _EVENT.unpack(self.monitor.recv_multipart()[0])
            if event == zmq.EVENT_ACCEPTED:
                self._undecided.add(descriptor)
            elif event == zmq.EVENT_DISCONNECTED and descriptor in self._undecided:
                self._undecided.remove(descriptor)
                TALLY.strangers += 1
        if self.undecided >= self._most and not self.shut:
            self._let_in(False)
        elif self.undecided <= self._most // 2 and self.shut:
            self._let_in(True)

    def _let_in(self, whoever: bool) -> None:
        """Set or lift a filter on the listening socket that drops all packets; its connections have none."""
        code = ctypes.create_string_buffer(_DROP_ALL)
        program = struct.pack("@HP", 1, ctypes.addressof(code))
        with sockets.socket(fileno=os.dup(self._listener)) as listener, suppress(OSError):  # lifting: there may be none
            listener.setsockopt(sockets.SOL_SOCKET, _DETACH_FILTER if whoever else _ATTACH_FILTER, program)
        self.shut = not whoever

    def close(self) -> None:
        """Stop watching; before the socket is closed."""
        self._socket.disable_monitor()
        self.monitor.close(linger=0)


def listen(socket: zmq.Socket[bytes], address: Address) -> None:
    """Take peers from the channel's listening socket. ZeroMQ closes what it is given, so that is a copy."""
    socket.setsockopt(zmq.USE_FD, os.dup(address.listener))
    socket.bind(address.bound)
