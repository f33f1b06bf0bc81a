"""The protocol between the two sides of a socket: one header of typed fields, and for a message one frame of bytes.

The side that binds says ``Hello`` first. In a BLOCK channel that is the reader, and the writer answers:

    reader                                writer
    Hello(session, next)          ──▶                    the place that I expect next, if I know one
                                  ◀──    Open(start)     I continue there
    Ack(released)                 ──▶                    how much room there is
                                  ◀──    Data, payload   in order, at most ``capacity`` unreleased
    Ack(released, note)           ──▶                    the writer may reuse these slots

In a LATEST channel the writer binds. Each reader answers ``Ask(have)``; the writer sends ``Data`` once there is a newer
message, and the reader asks again. ``Refused`` says that the arrays differ, and how.

``Bye`` says that an end was closed, and the other side answers ``Bye``. The closing side waits briefly for the answer:
closing a TCP socket with unread input also discards its own output that the other side has not read yet.

Nothing here is ever executed or unpickled. A header that is not exactly one of these is dropped and counted.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from weft.streams.compression import MOST_FIELDS

MAX_HEADER = 1 << 18
"""The most bytes of a header. Only a refusal with very many arrays comes near it."""

Place: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Size: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 48)]
Name: TypeAlias = Annotated[str, Meta(max_length=64)]


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """The side that binds, to each new peer. ``next``: the place that a reader expects; -1 if it is new."""

    token: Name  # of the channel: no end talks to another channel by mistake
    fingerprint: Name
    session: Int64  # from a reader: of the writer that it knows, or 0; from a LATEST writer: its own
    next: Annotated[int, Meta(ge=-1, le=1 << 62)]
    unpacks: bool = False  # a reader: fields may come compressed


class Open(Struct, tag="open", array_like=True, frozen=True):
    """A writer: my messages begin at ``start``."""

    token: Name
    fingerprint: Name
    session: Int64
    start: Place


class Ask(Struct, tag="ask", array_like=True, frozen=True):
    """A reader of LATEST: I have ``have`` messages of your session ``session``; send a newer one."""

    token: Name
    fingerprint: Name
    session: Int64
    have: Place


class Data(Struct, tag="data", array_like=True, frozen=True):
    """A message. The next frame is its slot, byte for byte; or with ``packed``, compressed fields, then the others."""

    place: Place
    stamp: tuple[Int64, Int64, Int64, Int64, Int64, Int64]
    packed: Annotated[tuple[Size, ...], Meta(max_length=MOST_FIELDS)] = ()  # bytes of each compressed field


class Ack(Struct, tag="ack", array_like=True, frozen=True):
    """A reader: I have released all places before ``released``."""

    released: Place
    note: Annotated[int, Meta(ge=-1, le=1 << 62)] = -1  # what it wants the writer to know with that; -1: nothing


class Refused(Struct, tag="refused", array_like=True, frozen=True):
    """Your arrays differ from mine."""

    arrays: Annotated[str, Meta(max_length=MAX_HEADER)]  # mine, as ``schema.array_specs_to_json`` writes them


class Bye(Struct, tag="bye", array_like=True, frozen=True):
    """This side was closed."""


Header: TypeAlias = Hello | Open | Ask | Data | Ack | Refused | Bye

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


def decode(frame: bytes | memoryview) -> Header | None:
    """The header in a frame; None if the frame holds no valid header."""
    if len(frame) > MAX_HEADER:
        return None
    try:
        header: Header = _decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return header
