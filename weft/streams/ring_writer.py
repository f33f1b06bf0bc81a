"""The writing end of a ring: in shared memory, in this process's memory, and on the local side of a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ChannelClosed, ChannelError
from weft.streams.bell import Bell, Rings
from weft.streams.channel import Arrays, Stamp
from weft.streams.ring import NOTE, READER_CLOSED, WRITER_CLOSED, Ring
from weft.streams.schema import check


class RingWriter:
    """Owns ``ring``, and closes it, but not the bells. A release rings ``bell``; a commit rings ``readers``.

    ``fault`` is called before and after each wait, and may raise an error that happened elsewhere.
    """

    def __init__(
        self, ring: Ring, bell: Bell, readers: Sequence[Rings], fault: Callable[[], None] | None = None
    ) -> None:
        self._ring, self._bell, self._readers, self._fault = ring, bell, tuple(readers), fault
        self._spec, self._waits = ring.spec, ring.spec.delivery is Delivery.BLOCK
        self._next = ring.committed  # a slot that an earlier writer reserved is forgotten
        self._reserved: Arrays | None = None
        self._closed, self._final = False, 0
        ring.words[WRITER_CLOSED] = 0
        self._ring_readers()  # an earlier writer may have died between its commit and its ring

    def reserve(self, timeout: float | None = None) -> Arrays | None:
        """See ``channel.Writer``."""
        if self._reserved is not None:
            return self._reserved
        if self._bell.wait_for(self._ready, timeout) is None:
            return None
        self._ring.begin(self._next)
        self._reserved = self._ring.arrays(self._next)
        return self._reserved

    def arrays_at(self, place: int) -> Arrays:
        """See ``channel.Writer``."""
        return self._ring.arrays(place)

    def commit(self, stamp: Stamp) -> None:
        """See ``channel.Writer``."""
        if self._reserved is None:
            raise ChannelError(
                f"channel {self._spec.name!r}: commit without reserve. Reserve a slot and write it first."
            )
        self._ring.end(self._next, stamp)
        self._next += 1
        self._reserved = None
        self._ring_readers()

    def send(self, arrays: Sequence[np.ndarray[Any, Any]], stamp: Stamp, timeout: float | None = None) -> bool:
        """See ``channel.Writer``."""
        check(arrays, self._spec.arrays, f"channel {self._spec.name!r}")
        slot = self.reserve(timeout)
        if slot is None:
            return False
        for into, array in zip(slot, arrays, strict=True):
            np.copyto(into, array)
        self.commit(stamp)
        return True

    @property
    def committed(self) -> int:
        """See ``channel.Writer``."""
        return self._next

    @property
    def unreleased(self) -> int:
        """See ``channel.Writer``; after close, as it was then."""
        return self._final if self._closed else self._ring.unreleased

    @property
    def noted(self) -> int:
        """See ``channel.Writer``; -1 after close."""
        return -1 if self._closed else self._ring.words[NOTE] - 1

    def close(self) -> None:
        """See ``channel.Writer``."""
        if self._closed:
            return
        self._final = self._ring.unreleased
        self._closed, self._reserved = True, None
        self._ring.words[WRITER_CLOSED] = 1
        self._ring_readers()
        self._ring.close()

    def leave(self) -> None:
        """Let the memory go without a word: another writer goes on from here."""
        if not self._closed:
            self._closed, self._reserved = True, None
            self._ring.close()

    def _ready(self) -> bool | None:
        """True if the next slot is free, else None; raises if it never will be."""
        if self._closed:
            raise ChannelClosed(f"channel {self._spec.name!r}: this writer was closed")
        if self._fault is not None:
            self._fault()
        ring = self._ring
        if ring.words[READER_CLOSED]:
            raise ChannelClosed(f"channel {self._spec.name!r}: its reader was closed, and takes no more")
        return not self._waits or self._next - ring.released < ring.capacity or None

    def _ring_readers(self) -> None:
        for bell in self._readers:
            bell.ring()
