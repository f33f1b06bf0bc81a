"""The two links of a LATEST channel over a socket: one link publishes, any number follow, each at its own pace.

A follower asks for the next message when it has received one. So at most one message is on its way to it, and the
messages that it was too slow for are never sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import zmq

from weft.core.errors import SchemaMismatch
from weft.streams.bell import Rings
from weft.streams.channel import Stamp
from weft.streams.endpoints import Address
from weft.streams.keys import Keys
from weft.streams.line import Frames, Line, Lines
from weft.streams.ring import WRITER_CLOSED, Ring
from weft.streams.schema import array_specs_to_json, fingerprint
from weft.streams.sockets import send
from weft.streams.tcp_ordered import new_session, refusal
from weft.streams.wire import MAX_HEADER, Ask, Bye, Data, Header, Hello, Refused, decode, encode

_MAX_FOLLOWERS = 1 << 15


class PublishLink:
    """A writer's side. Binds, and answers each follower that asks, once there is a newer message than it has."""

    def __init__(self, ring: Ring, token: str) -> None:
        self._ring, self._token = ring, token
        self._fingerprint, self._session = fingerprint(ring.spec.arrays), new_session()
        self._asking: dict[bytes, int] = {}  # routing id: messages that it has
        self._sent: dict[bytes, int] = {}  # routing id: messages that it has, or that are on their way
        self._newest: tuple[int, bytes, np.ndarray[Any, Any]] | None = None  # place, header, payload
        self._leaving = False
        self.refused: SchemaMismatch | None = None  # always None: this side refuses, the other is refused
        self.unexpected = 0
        self.line: Line

    def bind(self, lines: Lines, address: Address, keys: Keys | None) -> PublishLink:
        """Make the socket, in the pump's thread; returns itself."""
        self.line = lines.bind(address, keys, MAX_HEADER)
        return self

    def greet(self, peer: bytes) -> None:
        """A follower has connected: it may ask."""
        self._say(peer, Hello(self._token, self._fingerprint, self._session, self._ring.committed))

    def take(self, frames: Frames) -> None:
        """Handle one message from a peer."""
        peer = frames[0].bytes
        if len(frames) == 2 and not len(frames[1]):  # ZeroMQ's probe: a peer connected
            self.greet(peer)
            return
        header = decode(frames[1].buffer) if len(frames) == 2 else None
        match header:
            case Ask(token=self._token) if header.fingerprint != self._fingerprint:
                self.unexpected += 1
                self._say(peer, Refused(array_specs_to_json(self._ring.spec.arrays)))
            case Ask(token=self._token) if peer in self._sent or len(self._sent) < _MAX_FOLLOWERS:
                self._asking[peer] = self._sent[peer] = header.have if header.session == self._session else 0
            case Bye():
                self._forget(peer)
            case _:
                self.unexpected += 1

    def turn(self) -> None:
        """Answer the followers that asked."""
        committed = 0 if self._leaving else self._ring.committed
        for peer, have in list(self._asking.items()):
            if committed > have:
                del self._asking[peer]
                self._send_newest(peer)

    def finish(self, late: bool) -> bool:
        """True once every follower has the newest message, and knows that it is the last."""
        if not self._leaving:
            self._leaving = True
            for peer, sent in list(self._sent.items()):
                if self._ring.committed > sent:
                    self._send_newest(peer)
                self._say(peer, Bye())
        return late or not self._sent

    def _send_newest(self, peer: bytes) -> None:
        ring = self._ring
        while self._newest is None or self._newest[0] < ring.committed - 1:
            place = ring.committed - 1
            data = ring.spec.layout.buffer().data  # a new buffer: ZeroMQ may still be sending the last one
            stamp = ring.copy_whole(place, data)
            if stamp is not None:
                self._newest = place, encode(Data(place, stamp)), data
        place, header, data = self._newest
        self._sent[peer] = place + 1
        if not send(self.line.socket, peer, header, data):
            self._forget(peer)

    def _say(self, peer: bytes, header: Header) -> None:
        if not send(self.line.socket, peer, encode(header)):
            self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        self._sent.pop(peer, None)
        self._asking.pop(peer, None)


class FollowLink:
    """A reader's side. Connects. The places of a restarted writer continue after those of the writer before it."""

    def __init__(self, ring: Ring, token: str, bell: Rings) -> None:
        self._ring, self._token, self._bell = ring, token, bell
        self._fingerprint, self._session = fingerprint(ring.spec.arrays), 0
        self._offset = self._have = 0
        self.refused: SchemaMismatch | None = None
        self.unexpected = 0
        self.line: Line

    def connect(self, lines: Lines, address: Address, keys: Keys | None) -> FollowLink:
        """Make the socket, in the pump's thread; returns itself. The connection waits until there is a writer."""
        self.line = lines.connect(address, keys, max(MAX_HEADER, self._ring.spec.message_bytes))
        return self

    def greet(self, peer: bytes) -> None:
        """Does nothing: the writer greets."""

    def take(self, frames: Frames) -> None:
        """Handle one message from the writer's side."""
        header = decode(frames[0].buffer) if len(frames) in (1, 2) else None
        match header:
            case Hello(token=self._token) if len(frames) == 1:
                if header.session != self._session:
                    self._session, self._offset, self._have = header.session, self._ring.committed, 0
                self._ring.words[WRITER_CLOSED] = 0
                self._ask()
            case Data(packed=()) if len(frames) == 2 and self._session and header.place >= self._have:
                self._store(header, frames[1])
            case Bye() if len(frames) == 1:
                self._say(Bye())
                self._ring.words[WRITER_CLOSED] = 1
                self._bell.ring()
            case Refused() if len(frames) == 1:
                self.refused = refusal(self._ring.spec.name, header, self._ring)
                self._bell.ring()
            case _:
                self.unexpected += 1

    def turn(self) -> None:
        """Does nothing: this link sends only in answer to messages."""

    def finish(self, late: bool) -> bool:
        """Says Bye, and does not wait for an answer."""
        self._say(Bye())
        return True

    def _store(self, data: Data, payload: zmq.Frame) -> None:
        ring, place = self._ring, self._offset + data.place
        if len(payload) != ring.spec.message_bytes:
            self.unexpected += 1
            return
        ring.begin(place)
        np.copyto(ring.data(place), np.frombuffer(payload.buffer, np.uint8))
        ring.end(place, Stamp._make(data.stamp))
        self._have = data.place + 1
        self._bell.ring()
        self._ask()

    def _ask(self) -> None:
        self._say(Ask(self._token, self._fingerprint, self._session, self._have))

    def _say(self, header: Header) -> None:
        send(self.line.socket, None, encode(header))  # if no writer is connected, its next Hello starts over
