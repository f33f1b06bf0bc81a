"""What a message is made smaller by on its way to another host: its images, through LZ4.

Which arrays are tried follows from the schema alone: those of bytes (``uint8``) with ``LEAST`` of them or more. All
other numbers hardly shrink, and small arrays cost more than they save. The writer compresses where the reader has said
that it can undo it, and leaves a stream alone for a while where that did not halve what it tried.

Nothing that comes is trusted: a field is undone into exactly the bytes that the schema gives it, or the message is
refused. LZ4 is told that size, so that it allocates no more, whatever the frame claims. lz4 is an extra (``weft[ray]``
brings it); its block format has no header of its own.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from importlib import import_module, util
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from weft.streams.channel import ChannelSpec

LEAST = 4096
"""Bytes of the smallest array that is tried."""
MOST_FIELDS = 64
"""Arrays of a message that are tried, at most; those after them go as they are."""
KINDS: Container[str] = ("uint8",)
"""Dtypes of arrays that are tried."""
_WORTH = 0.5  # of the bytes that are tried: what is left of them at most
_PATIENCE = 64  # messages that are sent as they are after tries in vain, at most


class Packed(NamedTuple):
    """A message made smaller: the bytes of each compressed field, and all bytes: the fields', then all others."""

    sizes: tuple[int, ...]
    payload: np.ndarray[Any, Any]  # [n] uint8


def unpacks(spec: ChannelSpec) -> bool:
    """Whether an end of a channel compresses, and undoes it: it was asked to, has something to try, and has lz4."""
    return spec.compress and bool(_tried(spec)) and util.find_spec("lz4") is not None


class Packer:
    """Compresses the messages of one writer, where it pays."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._lz4: Any = import_module("lz4.block")
        self._tried, self._rest = _tried(spec), _rest(spec)
        self._most = _WORTH * sum(part.stop - part.start for part in self._tried)
        self._skips = self._in_vain = 0

    def pack(self, data: np.ndarray[Any, Any]) -> Packed | None:
        """A slot's bytes, smaller; None where it does not pay, or has not lately."""
        if self._skips:
            self._skips -= 1
            return None
        fields = [self._lz4.compress(data[part], store_size=False) for part in self._tried]
        if sum(map(len, fields)) > self._most:
            self._in_vain = min(_PATIENCE, 2 * self._in_vain or 1)
            self._skips = self._in_vain
            return None
        self._in_vain = 0
        parts = [*fields, *(data[part] for part in self._rest)]
        return Packed(tuple(map(len, fields)), np.frombuffer(b"".join(parts), np.uint8))


class Unpacker:
    """Undoes it for one reader."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._lz4: Any = import_module("lz4.block")
        self._tried, self._rest, self._bytes = _tried(spec), _rest(spec), spec.message_bytes

    def unpack(self, sizes: Sequence[int], payload: memoryview) -> list[tuple[slice, np.ndarray[Any, Any]]] | None:
        """What to write where in a slot, all of it; None where the message is not exactly that. Writes nothing."""
        plain = sum(part.stop - part.start for part in self._rest)
        if len(sizes) != len(self._tried) or len(payload) != sum(sizes) + plain or len(payload) > self._bytes:
            return None
        found, at = [], 0
        for part, size in zip(self._tried, sizes, strict=True):
            wanted = part.stop - part.start
            try:
                field = self._lz4.decompress(payload[at : at + size], uncompressed_size=wanted)
            except (self._lz4.LZ4BlockError, ValueError):
                return None
            if len(field) != wanted:
                return None
            found.append((part, np.frombuffer(field, np.uint8)))
            at += size
        for part in self._rest:
            end = at + part.stop - part.start
            found.append((part, np.frombuffer(payload[at:end], np.uint8)))
            at = end
        return found


def _tried(spec: ChannelSpec) -> list[slice]:
    """Where in a slot the arrays lie that are tried."""
    found = [
        slice(start, start + nbytes)
        for array, (start, nbytes) in zip(spec.arrays, spec.layout.extents, strict=True)
        if array.dtype in KINDS and nbytes >= LEAST
    ]
    return found[:MOST_FIELDS]


def _rest(spec: ChannelSpec) -> list[slice]:
    """All else in a slot."""
    edges = [slice(0, 0), *_tried(spec), slice(spec.message_bytes, spec.message_bytes)]
    return [slice(one.stop, other.start) for one, other in pairwise(edges) if one.stop < other.start]
