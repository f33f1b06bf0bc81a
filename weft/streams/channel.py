"""The contract of channels: what every channel promises, in memory, in shared memory or over a socket.

A channel has one writer and one reader; a LATEST channel has one writer and any number of readers. One thread at a time
uses an end. A message is a list of arrays of fixed shapes and dtypes, and a stamp; nothing else crosses a channel.

    writer:  slot = writer.reserve()          reader:  message = reader.receive()
             slot[0][...] = observation                 use(message.arrays)
             writer.commit(Stamp(...))                  reader.release(message)

An end waits on a bell (``bell.py``), which all the channels of a worker may share. Waiting clears the bell, so the side
that waits must look at every channel first: look, wait, look again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ConfigError
from weft.streams.schema import ArraySpec, ArraySpecs, SlotLayout, array_specs_from_json, slot_layout

__all__ = [
    "ArraySpec",
    "Arrays",
    "ChannelSpec",
    "Created",
    "Message",
    "Reader",
    "Stamp",
    "Writer",
]

Arrays: TypeAlias = "list[np.ndarray[Any, Any]]"
"""The arrays of one message, in the channel's order. The channel owns the list: write only to its arrays."""


class Stamp(NamedTuple):
    """Six int64 numbers that every message carries beside its arrays. The channel does not look at them."""

    producer: int = 0
    incarnation: int = 0  # which life of the producer
    sequence: int = 0  # with the two above, the sample's id
    version: int = 0  # of the params that made the message, or that it holds
    count: int = 0  # type: ignore[assignment]  # hides the tuple's method ``count``, which nothing uses
    tag: int = 0


class Message(NamedTuple):
    """A received message. Its arrays belong to the reader until it releases the message; then the writer reuses them.

    Each array begins on a cache line, so JAX on a CPU may use it without a copy (``jnp.asarray``, ``device_put``): copy
    what must outlive the release.
    """

    stamp: Stamp
    arrays: Arrays
    place: int  # its number in the channel, from 0


@dataclass(frozen=True)
class ChannelSpec:
    """All that an end needs to open a channel. It is plain data, sent to other processes as JSON."""

    name: str  # for error messages
    arrays: ArraySpecs
    capacity: int  # messages that may be committed and not yet released
    delivery: Delivery
    scheme: str = "shm"  # inproc, shm, ipc or tcp
    address: str = ""  # filled in by ``registry.create``
    compress: bool = False  # over a socket: images through LZ4, where both ends have it (``compression.py``)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigError(f"channel {self.name!r}: capacity {self.capacity}; at least one message must fit")

    @cached_property
    def layout(self) -> SlotLayout:
        """Where the arrays lie in a slot."""
        return slot_layout(self.arrays)

    @property
    def message_bytes(self) -> int:
        """The bytes of one message, with each array padded to whole cache lines."""
        return self.layout.nbytes

    @property
    def slots(self) -> int:
        """Messages that fit in memory.

        A LATEST writer never waits. It needs one slot more, so that it does not write over the newest message.
        """
        return self.capacity + (self.delivery is Delivery.LATEST)

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``from_json`` reads it."""
        return {
            "name": self.name,
            "arrays": [[spec.path, list(spec.shape), spec.dtype] for spec in self.arrays],
            "capacity": self.capacity,
            "delivery": self.delivery.value,
            "scheme": self.scheme,
            "address": self.address,
            "compress": self.compress,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """The spec that ``to_json`` gave."""
        return cls(
            saved["name"],
            array_specs_from_json(saved["arrays"]),
            int(saved["capacity"]),
            Delivery(saved["delivery"]),
            saved["scheme"],
            saved["address"],
            bool(saved["compress"]),
        )


class Writer(Protocol):
    """The sending end. If it dies, a new one continues after the last committed message."""

    def reserve(self, timeout: float | None = None) -> Arrays | None:
        """The arrays of the next free slot, to be written in place; their contents are undefined until then.

        Waits up to ``timeout`` seconds (0: not at all; None: for ever) while ``capacity`` messages are unreleased, and
        returns None if they still are. LATEST never waits. A second call without a commit returns the same slot.
        Raises ChannelClosed if the reader closed (a LATEST writer does not notice when readers come and go).
        """
        ...

    def arrays_at(self, place: int) -> Arrays:
        """The arrays of the slot that a place has or had: what was written there last."""
        ...

    def commit(self, stamp: Stamp) -> None:
        """Publish the reserved slot and ring the readers. The slot is no longer the writer's. Does not block."""
        ...

    def send(self, arrays: Sequence[np.ndarray[Any, Any]], stamp: Stamp, timeout: float | None = None) -> bool:
        """Reserve, copy ``arrays`` in, commit. Returns False where reserve would return None.

        Raises SchemaMismatch, before it copies anything, if a shape or a dtype differs from the channel's.
        """
        ...

    @property
    def committed(self) -> int:
        """Messages ever committed; in memory, those of earlier writers too."""
        ...

    @property
    def unreleased(self) -> int:
        """Messages committed and not yet released by the reader; 0 for LATEST."""
        ...

    @property
    def noted(self) -> int:
        """What the reader noted last (``Reader.note``), with the releases that have come; -1: nothing, or LATEST."""
        ...

    def close(self) -> None:
        """Send no more: the reader receives what was committed, then ChannelClosed. May be called twice."""
        ...


class Reader(Protocol):
    """The receiving end. If it dies, a new one continues after the last released message."""

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None if none came within ``timeout`` seconds (0: do not wait; None: for ever).

        BLOCK: messages come in order, and the arrays are the slot's own. The reader may hold several messages at once,
        up to the channel's capacity. LATEST: the newest message that this reader has not seen, never torn. Its arrays
        belong to the reader, until the next receive that returns a message.
        Raises ChannelClosed when the writer closed and everything has been received.
        """
        ...

    def release(self, message: Message) -> None:
        """Give the slot back and ring the writer. Release in the order received. For LATEST it does nothing."""
        ...

    def note(self, number: int) -> None:
        """Have a number, from 0, go to the writer with the next release: it is there before the slot is seen free.

        For LATEST it does nothing.
        """
        ...

    @property
    def unread(self) -> int:
        """Messages that can be received without waiting."""
        ...

    def announce(self, told: Callable[[], None]) -> bool:
        """Call ``told`` now, and from any thread whenever a look at this reader may find something new.

        So a side with thousands of readers need not look at each when its bell rings. Returns False, and calls
        nothing, where the channel cannot tell.
        """
        ...

    def close(self) -> None:
        """Take no more: the writer's next reserve raises ChannelClosed. May be called twice."""
        ...


class Created(Protocol):
    """The launcher's hold on a channel: keep it for as long as an end may be opened."""

    @property
    def spec(self) -> ChannelSpec:
        """The spec with its address filled in. Open the ends with it."""
        ...

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors that a child process must inherit (``subprocess``'s ``pass_fds``) to open an end."""
        ...

    @property
    def committed(self) -> int:
        """Messages ever committed, correct even after a crash; 0 over sockets, where only the ends know."""
        ...

    def close(self) -> None:
        """Give the memory or the socket back. Open ends stay usable; new ones cannot be opened."""
        ...
