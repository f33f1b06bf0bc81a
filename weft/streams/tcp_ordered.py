"""The two links of a BLOCK channel over a socket: see ``wire.py`` for the protocol.

Each link works on its end's local ring, and stands in for the end on the other side: the sending link reads the
writer's ring and stores the reader's progress there; the receiving link writes the reader's ring. To the ends it looks
as if they shared one ring.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import zmq

from weft.core.errors import SchemaMismatch
from weft.streams.bell import Rings
from weft.streams.channel import Stamp
from weft.streams.compression import Packer, Unpacker, unpacks
from weft.streams.endpoints import Address
from weft.streams.keys import Keys
from weft.streams.line import Frames, Line, Lines
from weft.streams.ring import COMMITTED, CURSOR, NOTE, READER_CLOSED, RELEASED, WRITER_CLOSED, Ring
from weft.streams.schema import array_specs_from_json, array_specs_to_json, difference, fingerprint
from weft.streams.sockets import send
from weft.streams.wire import MAX_HEADER, Ack, Bye, Data, Header, Hello, Open, Refused, decode, encode

_KEPT = 1 << 16  # bytes; a payload of this size or more is not copied on arrival; ZeroMQ aligns those to 8 bytes


def new_session() -> int:
    """A random number that identifies one life of an end."""
    return secrets.randbelow((1 << 62) - 1) + 1


def refusal(name: str, refused: Refused, mine: Ring) -> SchemaMismatch | None:
    """The error that a refusal describes; None if the refusal is malformed."""
    try:
        other = array_specs_from_json(refused.arrays)
    except (ValueError, TypeError):
        return None
    words = difference(other, mine.spec.arrays) or "the other side says so"
    return SchemaMismatch(f"channel {name!r}: the other end was opened with other arrays: {words}")


class SendLink:
    """A writer's side. Connects, and sends nothing until the reader has said where to begin.

    It sends a slot without a copy: the writer does not write to the slot again before the reader has released it.
    """

    def __init__(self, ring: Ring, token: str, bell: Rings) -> None:
        self._ring, self._token, self._bell = ring, token, bell
        self._fingerprint, self._session = fingerprint(ring.spec.arrays), new_session()
        self._origin: int | None = None  # the channel's place of the ring's place 0
        self._known = False  # the reader has accepted our Open
        self._released: int | None = None  # the channel's place that the reader has released up to; None: not known yet
        self._open = self._leaving = False
        self._sent = 0  # ring places sent so far
        self._packer: Packer | None = None  # where the reader can undo what it does
        self.refused: SchemaMismatch | None = None
        self.unexpected = 0
        self.line: Line

    def connect(self, lines: Lines, address: Address, keys: Keys | None) -> SendLink:
        """Make the socket, in the pump's thread; returns itself. The connection waits until there is a reader."""
        self.line = lines.connect(address, keys, MAX_HEADER)
        self._endpoint = address.endpoint
        return self

    def greet(self, peer: bytes) -> None:
        """Does nothing: the reader greets."""

    def repoint(self, place: str) -> None:
        """Connect to ``place`` instead, in the pump's thread: the reader there begins anew."""
        endpoint = f"tcp://{place}"
        if endpoint != self._endpoint:
            self.line.socket.connect(endpoint)
            self.line.socket.disconnect(self._endpoint)
            self._endpoint, self._open = endpoint, False

    def take(self, frames: Frames) -> None:
        """Handle one message from the reader's side."""
        header = decode(frames[0].buffer) if len(frames) == 1 else None
        match header:
            case Ack() if self._open:
                self._progress(header)
            case Hello(token=self._token):
                self._begin(header)
            case Refused():
                self._open, self.refused = False, refusal(self._ring.spec.name, header, self._ring)
                self._bell.ring()
            case Bye():
                if self._open and not self._leaving:
                    self._say(encode(Bye()))
                self._open = False
                self._ring.words[READER_CLOSED] = 1
                self._bell.ring()
            case _:
                self.unexpected += 1

    def turn(self) -> None:
        """Send what the reader has room for."""
        ring = self._ring
        while self._open and self._sent < ring.committed and self._room():
            assert self._origin is not None
            data = ring.data(self._sent)
            packed = None if self._packer is None else self._packer.pack(data)
            sizes, payload = ((), data) if packed is None else packed
            if not self._say(encode(Data(self._origin + self._sent, ring.stamp(self._sent), sizes)), payload):
                return
            self._sent += 1

    def finish(self, late: bool) -> bool:
        """True once the reader has answered our Bye, which is sent last, or if no answer will come."""
        if late or self.refused is not None or self._ring.words[READER_CLOSED]:
            return True
        if self._open and not self._leaving and self._sent == self._ring.committed:
            self._leaving = self._say(encode(Bye()))
        return False

    def _room(self) -> bool:
        """Whether the reader has room for one more: it may still hold messages of an earlier writer."""
        assert self._origin is not None
        return self._released is not None and self._origin + self._sent - self._released < self._ring.capacity

    def _begin(self, hello: Hello) -> None:
        """Start where the reader needs it: a new one needs all unreleased messages, a known one those it has not."""
        ring, released = self._ring, self._ring.released
        ring.words[READER_CLOSED] = 0
        if not (hello.unpacks and unpacks(ring.spec)):
            self._packer = None
        elif self._packer is None:
            self._packer = Packer(ring.spec)
        new = hello.next < 0
        self._known = self._known or hello.session == self._session
        if self._origin is None or not (new or self._known):  # it has received from an earlier writer meanwhile
            self._origin = max(0, hello.next)
        start = released if new else min(ring.committed, max(released, hello.next - self._origin))
        self._sent, self._released = start, None
        self._open = True
        self._say(encode(Open(self._token, self._fingerprint, self._session, self._origin + start)))

    def _progress(self, ack: Ack) -> None:
        # Places before our origin belong to an earlier writer: until they are released, our released place is 0.
        released = max(0, ack.released - (self._origin or 0))
        if not self._ring.released <= released <= self._sent:
            self.unexpected += 1
            return
        self._known, self._released = True, ack.released
        self._ring.words[NOTE] = ack.note + 1  # first: the writer must not see the slot without it
        self._ring.words[RELEASED] = released
        self._bell.ring()

    def _say(self, header: bytes, payload: np.ndarray[Any, Any] | None = None) -> bool:
        """Send without waiting. If no reader is connected, nothing is sent, and the next Hello starts over."""
        self._open = send(self.line.socket, None, header, payload)
        return self._open


class ReceiveLink:
    """A reader's side. Binds, and listens to one writer at a time: the last that opened."""

    def __init__(self, ring: Ring, token: str, bell: Rings) -> None:
        self._ring, self._token, self._bell = ring, token, bell
        self._fingerprint = fingerprint(ring.spec.arrays)
        self._writer, self._session = b"", 0  # routing id and session of the last writer that opened
        self._next = -1  # the next place; -1: no writer has opened yet
        self._told: tuple[int, int] | None = None  # the released place and the note that the writer was told
        self._leaving = False
        self._unpacker = Unpacker(ring.spec) if unpacks(ring.spec) else None
        self.refused: SchemaMismatch | None = None  # always None: this side refuses, the other is refused
        self.kept: dict[int, zmq.Frame] = {}  # by place: large payloads, left in ZeroMQ's own memory
        self.unexpected = 0
        self.line: Line

    def bind(self, lines: Lines, address: Address, keys: Keys | None) -> ReceiveLink:
        """Find or make the socket, in the pump's thread; returns itself. ChannelError while another end is there."""
        self.line = lines.bind(address, keys, max(MAX_HEADER, self._ring.spec.message_bytes))
        return self

    def greet(self, peer: bytes) -> None:
        """A writer has connected: tell it what is expected."""
        self._say(peer, Hello(self._token, self._fingerprint, self._session, self._next, self._unpacker is not None))

    def take(self, frames: Frames) -> None:
        """Handle one message from a peer."""
        peer = frames[0].bytes
        if len(frames) == 2 and not len(frames[1]):  # ZeroMQ's probe: a peer connected
            self.greet(peer)
            return
        header = decode(frames[1].buffer) if len(frames) in (2, 3) else None
        match header:
            case Data() if len(frames) == 3 and peer == self._writer and self._wanted(header):
                self._store(header, frames[2])
            case Open(token=self._token) if len(frames) == 2:
                self._begin(peer, header)
            case Bye() if len(frames) == 2 and peer == self._writer:
                if not self._leaving:
                    self._say(peer, Bye())
                self._writer = b""
                self._ring.words[WRITER_CLOSED] = 1
                self._bell.ring()
            case _:
                self.unexpected += 1

    def turn(self) -> None:
        """Tell the writer how far the reader has released, if that has changed."""
        if not self._writer or self._leaving:
            return
        now = self._ring.released, self._ring.words[NOTE] - 1  # in this order: a note is stored before its release
        if now != self._told:
            self._told = now
            self._say(self._writer, Ack(*now))

    def finish(self, late: bool) -> bool:
        """True once the writer knows. Messages that were not released are sent again to the next reader."""
        if self._writer and not self._leaving:
            self._leaving = self._say(self._writer, Bye())
        return late or not self._writer or not self._leaving

    def _begin(self, peer: bytes, opened: Open) -> None:
        if opened.fingerprint != self._fingerprint:
            self.unexpected += 1
            self._say(peer, Refused(array_specs_to_json(self._ring.spec.arrays)))
            return
        words, start = self._ring.words, opened.start
        if self._next < 0:  # the ring is empty and unused: its places begin at the writer's
            words[CURSOR] = words[RELEASED] = start
            words[COMMITTED] = self._next = start
        elif start > self._next:
            self.unexpected += 1  # it would skip places
            return
        elif start < self._next and opened.session != self._session:  # more of an earlier writer has come since
            self.greet(peer)
            return
        self._writer, self._session, self._told = peer, opened.session, None
        words[WRITER_CLOSED] = 0

    def _wanted(self, data: Data) -> bool:
        """Whether this is the next place, and there is room for it."""
        return data.place == self._next and data.place - self._ring.released < self._ring.capacity

    def _store(self, data: Data, payload: zmq.Frame) -> None:
        ring, place = self._ring, data.place
        parts = self._unpacked(data, payload)
        if parts is None:
            self.unexpected += 1
            return
        ring.begin(place)
        if not data.packed and len(payload) >= _KEPT:
            self.kept[place] = payload
        else:
            slot = ring.data(place)
            for part, values in parts:
                np.copyto(slot[part], values)
        ring.end(place, Stamp._make(data.stamp))
        self._next = place + 1
        self._bell.ring()

    def _unpacked(self, data: Data, payload: zmq.Frame) -> list[tuple[slice, np.ndarray[Any, Any]]] | None:
        """A message's bytes, and where they belong in its slot; None where they are not exactly a slot's."""
        if data.packed:
            return None if self._unpacker is None else self._unpacker.unpack(data.packed, payload.buffer)
        whole = len(payload) == self._ring.spec.message_bytes
        return [(slice(None), np.frombuffer(payload.buffer, np.uint8))] if whole else None

    def _say(self, peer: bytes, header: Header) -> bool:
        return send(self.line.socket, peer, encode(header))
