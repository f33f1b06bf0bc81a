"""What the two sides of a socket say to each other: one header of typed fields, and for a message one frame of bytes.

Each side that is connected to says ``Hello`` first. Of an ordinary channel that is the reader, and the writer answers:

    reader                                writer
    Hello(session, next)          ──▶                    what I have of your session, if anything
                                  ◀──    Open(start)     I go on there
    Ack(released)                 ──▶                    how much room there is
                                  ◀──    Data, payload   in order of place, at most ``capacity`` that were not released
    Ack(released)                 ──▶                    the writer keeps a slot until it was released

Of a LATEST channel it is the writer, and each reader answers ``Ask(have)``, which is answered by ``Data`` once there is
a newer message, and is then asked again. ``Refused`` says that the arrays differ, and how.

``Bye`` says that an end was closed, and is answered by ``Bye``. Who closes waits for the answer, a little: a socket
that is closed with words unread takes back, in TCP, even those of its own that the other side has not read yet.

Nothing here is ever executed or unpickled: a header that is not exactly one of these is dropped and counted.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

MAX_HEADER = 1 << 18
"""Bytes of a header, at most; only a refusal with very many arrays comes near it."""

Place: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name: TypeAlias = Annotated[str, Meta(max_length=64)]


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """The bound side, to whoever connects. ``next``: the place that a reader wants; -1 where it is new."""

    token: Name  # of the channel: nobody talks to a channel by mistake
    fingerprint: Name
    session: Int64  # a reader: of the writer that it knows, 0 where none; a LATEST writer: its own
    next: Annotated[int, Meta(ge=-1, le=1 << 62)]


class Open(Struct, tag="open", array_like=True, frozen=True):
    """A writer: what follows begins at ``start``."""

    token: Name
    fingerprint: Name
    session: Int64
    start: Place


class Ask(Struct, tag="ask", array_like=True, frozen=True):
    """A reader of LATEST: I have ``have`` messages of your session ``session``; send a newer one when there is one."""

    token: Name
    fingerprint: Name
    session: Int64
    have: Place


class Data(Struct, tag="data", array_like=True, frozen=True):
    """A message; the frame after this one is its slot, byte for byte."""

    place: Place
    stamp: tuple[Int64, Int64, Int64, Int64, Int64, Int64]


class Ack(Struct, tag="ack", array_like=True, frozen=True):
    """A reader: I have released all places before ``released``."""

    released: Place


class Refused(Struct, tag="refused", array_like=True, frozen=True):
    """Your arrays are not mine."""

    arrays: Annotated[str, Meta(max_length=MAX_HEADER)]  # mine, as ``schema.array_specs_to_json`` writes them


class Bye(Struct, tag="bye", array_like=True, frozen=True):
    """This side was closed."""


Header: TypeAlias = Hello | Open | Ask | Data | Ack | Refused | Bye

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


def decode(frame: bytes | memoryview) -> Header | None:
    """The header in a frame; None where it is not one."""
    if len(frame) > MAX_HEADER:
        return None
    try:
        header: Header = _decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return header
