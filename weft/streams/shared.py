"""Channels that share one listener: one port, one set of keys and one socket at the reader, however many the writers.

Their tokens say so, ``GROUP.COUNT.NUMBER``. A writer connects under a name that begins with its channel's token, so the
one socket that all of them reach knows the channel of every frame (``line.py``).
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import replace
from os import dup
from typing import NamedTuple

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError
from weft.streams.channel import ChannelSpec, Created
from weft.streams.endpoints import parse_address

_BACKLOG = 4096
"""Connections that wait to be accepted; the kernel has a bound of its own, ``net.core.somaxconn``."""


class Shared(NamedTuple):
    """What a token says: the ``number`` of a channel among the ``channels`` that share a listener."""

    group: str
    channels: int
    number: int

    @property
    def token(self) -> str:
        """As text; ``shared`` reads it."""
        return f"{self.group}.{self.channels}.{self.number}"


def shared(token: str) -> Shared | None:
    """What a token says of the listener that its channel shares; None where it has its own."""
    group, _, rest = token.partition(".")
    count, _, number = rest.partition(".")
    return Shared(group, int(count), int(number)) if count.isdigit() and number.isdigit() else None


def peer_name(token: str) -> bytes:
    """The name under which one end of a shared channel connects: unlike that of any other."""
    return f"{token}/{secrets.token_hex(8)}".encode()


def token_of(peer: bytes) -> bytes:
    """The token in a peer's name; the whole name, where it is none that ``peer_name`` gave."""
    return peer.partition(b"/")[0]


class SharedCreated:
    """See ``channel.Created``: one of the channels of ``first``, which closes when the last of them does."""

    committed = 0

    def __init__(self, spec: ChannelSpec, first: Created, open_: set[int], number: int) -> None:
        self.spec, self.fds = spec, first.fds
        self._first, self._open, self._number = first, open_, number

    def close(self) -> None:
        """Give the port back, where no other channel needs it; may be called twice."""
        self._open.discard(self._number)
        if not self._open:
            self._first.close()


def share(first: Created, specs: Sequence[ChannelSpec]) -> list[Created]:
    """Channels for ``specs``, all at the listener of ``first``, which was made for the first of them.

    One process opens all their readers. They block, and their messages are of one size, which is the most that the
    socket takes from anybody.
    """
    if any(s.delivery is not Delivery.BLOCK or s.message_bytes != first.spec.message_bytes for s in specs):
        raise ChannelError(
            f"channels {specs[0].name!r} to {specs[-1].name!r} cannot share a listener: their messages differ in size, "
            "or are not delivered in order"
        )
    address = parse_address(first.spec.address, first.spec.name)
    with socket.socket(fileno=dup(address.listener)) as listener:
        listener.listen(_BACKLOG)
    group, open_ = secrets.token_hex(8), set(range(len(specs)))
    made: list[Created] = []
    for number, spec in enumerate(specs):
        own = address._replace(token=Shared(group, len(specs), number).token)
        made.append(SharedCreated(replace(spec, address=str(own)), first, open_, number))
    return made
