"""Lines: a socket each, and the links that talk over it. One link, or those of all channels that share a listener.

A shared line finds the link of a frame by its peer's name, which begins with the channel's token (``shared.py``): in
one look, however many links there are.
"""

from __future__ import annotations

from typing import Any, Protocol

import zmq

from weft.core.errors import ChannelError, SchemaMismatch
from weft.streams.door import Door
from weft.streams.endpoints import Address
from weft.streams.keys import Keys
from weft.streams.shared import Shared, shared, token_of
from weft.streams.sockets import dealer, router

Frames = list[zmq.Frame]


class Link(Protocol):
    """One end's side of a socket. Only the pump's thread calls it."""

    line: Line
    unexpected: int  # malformed or out-of-turn frames, which were dropped
    refused: SchemaMismatch | None  # why the other side refused this one

    def take(self, frames: Frames) -> None:
        """Handle one message from the socket."""
        ...

    def greet(self, peer: bytes) -> None:
        """A peer has connected; one that connects itself has none to greet."""
        ...

    def turn(self) -> None:
        """Something may have moved: send what can be sent."""
        ...

    def finish(self, late: bool) -> bool:
        """The end was closed. Returns True once everything, with the Bye, is sent; ``late``: the time is up."""
        ...


class Line:
    """A socket with its links; ``door`` watches it where it is bound and has keys."""

    def __init__(self, socket: zmq.Socket[bytes], door: Door | None, sharing: Shared | None, max_bytes: int) -> None:
        self.socket, self.door, self.max_bytes = socket, door, max_bytes
        self.fd = int(socket.getsockopt(zmq.FD))
        self._sharing = sharing
        self._links: dict[bytes, Link] = {}
        self._only: Link | None = None
        self._peers: dict[bytes, bytes] = {}  # by token: the peer that connected last, whether it has a link yet or not

    def add(self, link: Link, token: str) -> None:
        """Serve a link. A peer of its channel may have come before it, and is greeted."""
        self._links[token.encode()] = link
        if self._sharing is None:
            self._only = link
        elif (peer := self._peers.get(token.encode())) is not None:
            link.greet(peer)

    def remove(self, token: str) -> None:
        """Serve a link no longer."""
        self._links.pop(token.encode(), None)

    @property
    def links(self) -> int:
        """How many links it serves."""
        return len(self._links)

    def link_of(self, frames: Frames) -> Link | None:
        """The link that a message is for; None where there is none, or none yet."""
        if self._only is not None:
            return self._only
        assert self._sharing is not None
        peer = frames[0].bytes
        token = token_of(peer)
        if (
            len(frames) == 2
            and not len(frames[1])
            and (token in self._peers or len(self._peers) < self._sharing.channels)
        ):
            self._peers[token] = peer
        return self._links.get(token)

    def close(self) -> None:
        """Close the socket, and stop watching it."""
        if self.door is not None:
            self.door.close()
        self.socket.close()


class Lines:
    """Makes the lines of a process, in the pump's thread; a listener's line is found again by those that share it."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self._context = context
        self._shared: dict[str, Line] = {}  # by group
        self._bound: dict[str, Line] = {}  # by token

    def connect(self, address: Address, keys: Keys | None, max_bytes: int) -> Line:
        """A line of its own to a listener. The connection waits until somebody takes it."""
        return Line(dealer(self._context, address, keys, max_bytes), None, None, max_bytes)

    def bind(self, address: Address, keys: Keys | None, max_bytes: int) -> Line:
        """The line of a listener: a new one, unless another channel that shares it is open already.

        Raises ChannelError while another link of this process is bound for the same channel.
        """
        if address.token in self._bound:
            raise ChannelError("the end that was there before is still open. There is one owner at a time")
        sharing = shared(address.token)
        line = None if sharing is None else self._shared.get(sharing.group)
        if line is None:
            line = Line(*router(self._context, address, keys, max_bytes), sharing, max_bytes)
            if sharing is not None:
                self._shared[sharing.group] = line
        elif line.max_bytes != max_bytes:
            raise ChannelError(f"its messages have {max_bytes} bytes, and those of its listener {line.max_bytes}")
        self._bound[address.token] = line
        return line

    def release(self, token: str, line: Line) -> None:
        """A link of a line is gone; the line closes with its last."""
        if self._bound.get(token) is line:
            del self._bound[token]
        line.remove(token)
        if not line.links:
            sharing = shared(token)
            if sharing is not None and self._shared.get(sharing.group) is line:
                del self._shared[sharing.group]
            line.close()
