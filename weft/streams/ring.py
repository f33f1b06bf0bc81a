"""A ring of slots in shared bytes, with the words that keep its counts right when either end dies at any moment.

    line 0   magic, fingerprint (2 words), slots, slot bytes, delivery, bytes of the schema     never change
    line 1   committed                                                                          the writer's
    line 2   writer closed                                                                      the writer's
    line 3   released, cursor, note                                                             the reader's
    line 4   reader closed                                                                      the reader's
    then     the schema as JSON, to name a difference; then the slots, each:
             begin, end, stamp (6 words), and the arrays

Words are int64, and each has one owner, the only side that stores it. Lines are 64 bytes, so that the owners do not
slow each other. A message's number in the channel is its place; place ``p`` lies in slot ``p % slots``. ``begin`` and
``end`` are ``p + 1`` when the slot holds the whole of place ``p``; they differ while it is written.

``released`` is the place up to which the reader has released; ``cursor`` is the next place to be received. A new reader
sets the cursor back to ``released``. ``note`` is 1 + a number that the reader has for the writer, 0: none; it is stored
before the release that it goes with.

Order of stores. Python has no memory barriers. x86 keeps stores in order and loads in order, and the bulk copies of
the C library end with a fence; the ring needs no more. On ARM, the system call that rings the bell orders the stores
before it for the thread that sleeps on the bell; a reader that looks without having slept relies on the interpreter's
own locks between two bytecodes.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError, SchemaMismatch
from weft.streams.channel import Arrays, ChannelSpec, Stamp
from weft.streams.schema import LINE, aligned, array_specs_from_json, array_specs_to_json, difference, fingerprint

MAGIC = 0x57454654_0002  # "WEFT", and the version of this layout
_LINE_WORDS = LINE // 8
COMMITTED = 1 * _LINE_WORDS
WRITER_CLOSED = 2 * _LINE_WORDS
RELEASED = 3 * _LINE_WORDS
CURSOR = RELEASED + 1
NOTE = RELEASED + 2
READER_CLOSED = 4 * _LINE_WORDS
_HEADER = 5 * LINE
_HEAD = LINE  # of a slot: begin, end, stamp
_STAMP = struct.Struct("6q")
_DELIVERIES = tuple(Delivery)


class Ring:
    """The words and slots of one channel, over ``buffer``, which other Rings may share.

    It neither waits nor rings: the ends do (``ring_writer.py``, ``ring_reader.py``).
    """

    def __init__(self, buffer: mmap.mmap, spec: ChannelSpec) -> None:
        """Open a ring that ``lay_out`` made; raises SchemaMismatch if it was made for other arrays."""
        self.spec, self.slots, self.capacity = spec, spec.slots, spec.capacity
        self._buffer: Any = buffer
        self.words = memoryview(buffer).cast("B").cast("q")
        self._views: list[Arrays] = []
        self._data: Arrays = []
        try:
            self._check()
        except ChannelError:
            self.close()
            raise
        layout = spec.layout
        start = _HEADER + aligned(self.words[6])
        self._heads = [start + i * (_HEAD + layout.nbytes) for i in range(self.slots)]
        self._views = [layout.views(buffer, head + _HEAD) for head in self._heads]
        self._data = [np.ndarray((layout.nbytes,), np.uint8, buffer, head + _HEAD) for head in self._heads]

    def _check(self) -> None:
        words, spec = self.words, self.spec
        where = f"channel {spec.name!r}"
        if len(words) * 8 < _HEADER or words[0] != MAGIC:
            raise ChannelError(f"{where}: {spec.address or 'its memory'} holds no channel of this version of Weft")
        if (words[1], words[2]) != _fingerprint_words(spec):
            made_for = array_specs_from_json(bytes(self._buffer[_HEADER : _HEADER + words[6]]).decode())
            raise SchemaMismatch(f"{where}: it was made for other arrays: {difference(made_for, spec.arrays)}")
        made = (words[3], words[4], words[5])
        asked = (spec.slots, spec.message_bytes, _DELIVERIES.index(spec.delivery))
        if made != asked:
            raise SchemaMismatch(
                f"{where}: made with {made[0]} slots, delivery {_DELIVERIES[made[2]].value}; "
                f"opened with {asked[0]} slots, delivery {spec.delivery.value}. Open the spec that create() gave."
            )

    @staticmethod
    def nbytes(spec: ChannelSpec) -> int:
        """The bytes of a ring, with its header."""
        schema = len(array_specs_to_json(spec.arrays).encode())
        return _HEADER + aligned(schema) + spec.slots * (_HEAD + spec.message_bytes)

    @staticmethod
    def lay_out(buffer: mmap.mmap, spec: ChannelSpec) -> None:
        """Make an empty ring in ``buffer``, whose bytes are all zero."""
        schema = array_specs_to_json(spec.arrays).encode()
        buffer[_HEADER : _HEADER + len(schema)] = schema
        fixed = (spec.slots, spec.message_bytes, _DELIVERIES.index(spec.delivery), len(schema))
        struct.pack_into("7q", buffer, 0, MAGIC, *_fingerprint_words(spec), *fixed)

    # Slots

    def arrays(self, place: int) -> Arrays:
        """The arrays of a place, in the slot's own memory."""
        return self._views[place % self.slots]

    def data(self, place: int) -> np.ndarray[Any, Any]:
        """[message bytes] uint8: all arrays of a place, with the padding between them."""
        return self._data[place % self.slots]

    def stamp(self, place: int) -> Stamp:
        """The stamp of a place."""
        return Stamp._make(_STAMP.unpack_from(self._buffer, self._heads[place % self.slots] + 16))

    def begin(self, place: int) -> None:
        """Mark the slot as being written: a reader that is copying it will notice."""
        self.words[self._heads[place % self.slots] // 8] = place + 1

    def end(self, place: int, stamp: Stamp) -> None:
        """Mark the slot as whole, and publish it."""
        head = self._heads[place % self.slots]
        _STAMP.pack_into(self._buffer, head + 16, *stamp)
        self.words[head // 8 + 1] = place + 1
        self.words[COMMITTED] = place + 1

    def copy_whole(self, place: int, into: np.ndarray[Any, Any]) -> Stamp | None:
        """Copy a place's data. None, with ``into`` spoilt, if the slot holds another place or was written meanwhile."""
        words, head = self.words, self._heads[place % self.slots] // 8
        if words[head] != place + 1 or words[head + 1] != place + 1:
            return None
        stamp = self.stamp(place)
        np.copyto(into, self._data[place % self.slots])
        return stamp if words[head] == place + 1 else None

    # Counts

    @property
    def committed(self) -> int:
        """Places ever committed, which is the next place's number."""
        return self.words[COMMITTED]

    @property
    def released(self) -> int:
        """The reader has released all places before this one."""
        return self.words[RELEASED]

    @property
    def unreleased(self) -> int:
        """Messages on their way, or held by the reader; 0 for LATEST, whose readers release nothing."""
        if self.spec.delivery is Delivery.LATEST:
            return 0
        return max(0, self.words[COMMITTED] - self.words[RELEASED])

    def close(self) -> None:
        """Let the memory go. It is freed with the last ring and the last array that use it."""
        self.words.release()
        self._views, self._data = [], []
        self._buffer = None


def _fingerprint_words(spec: ChannelSpec) -> tuple[int, int]:
    low, high = struct.unpack("2q", bytes.fromhex(fingerprint(spec.arrays)))
    return low, high
