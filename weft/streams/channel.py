"""The contract of channels: what every live stream promises, whether in memory, in shared memory or over a socket.

A channel has one writer and one reader; a LATEST channel, one writer and any number of readers. Each end is used by one
thread at a time. A message is a list of arrays of fixed shapes and dtypes, and a stamp; nothing else ever crosses.

    writer:  slot = writer.reserve()          reader:  message = reader.receive()
             slot[0][...] = observation                 use(message.arrays)
             writer.commit(Stamp(...))                  reader.release(message)

Waiting is done on a bell (``bell.py``), which may be shared by all the channels of a worker. Who waits there must look
at every channel first, since waiting clears it: look, wait, look again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ConfigError
from weft.streams.schema import ArraySpec, ArraySpecs, SlotLayout, array_specs_from_json

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
"""The arrays of one message, in the channel's order. The list is the channel's: alter only its arrays."""


class Stamp(NamedTuple):
    """What every message carries beside its arrays: six numbers, int64 each, that the channel does not look at."""

    producer: int = 0
    incarnation: int = 0  # which life of the producer
    sequence: int = 0  # with the two above: the sample's id
    version: int = 0  # of the params it was made with, or that it holds
    count: int = 0  # type: ignore[assignment]  # a tuple's own ``count`` is not missed here
    tag: int = 0


class Message(NamedTuple):
    """A message received. Its arrays belong to the reader until it is released; afterwards they may be written over.

    In memory they lie on cache lines, so that JAX on a CPU may take them without a copy (``jnp.asarray``,
    ``device_put``): copy what must outlive the release.
    """

    stamp: Stamp
    arrays: Arrays
    place: int  # its number in the channel, from 0


@dataclass(frozen=True)
class ChannelSpec:
    """All that an end must know to open a channel; plain data, that goes to other processes as JSON."""

    name: str  # for messages to people
    arrays: ArraySpecs
    capacity: int  # messages that may be on their way: committed and not yet released
    delivery: Delivery
    scheme: str = "shm"  # inproc, shm or tcp
    address: str = ""  # filled in by ``registry.create``

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigError(f"channel {self.name!r}: capacity {self.capacity}; at least one message must fit")

    @cached_property
    def layout(self) -> SlotLayout:
        """Where the arrays lie in a slot."""
        return SlotLayout(self.arrays)

    @property
    def message_bytes(self) -> int:
        """One message, its arrays padded to cache lines."""
        return self.layout.nbytes

    @property
    def slots(self) -> int:
        """Messages that there is memory for.

        A writer of LATEST never waits: it needs one slot more, so that what it is writing does not destroy the newest.
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
        )


class Writer(Protocol):
    """The sending end. A new one, opened where the old one died, goes on after the last message committed."""

    def reserve(self, timeout: float | None = None) -> Arrays | None:
        """The next free slot's arrays, to be written in place; what they hold before that is undefined.

        Blocks up to ``timeout`` seconds (0: not at all; None: for ever) while ``capacity`` messages are unreleased, and
        returns None if they still are. LATEST never waits. Called again without a commit it gives the same slot.
        Raises ChannelClosed if the reader closed (of a LATEST channel, readers come and go unnoticed).
        """
        ...

    def commit(self, stamp: Stamp) -> None:
        """Publish the reserved slot, and ring the readers; its arrays are the writer's no longer. Does not block."""
        ...

    def send(self, arrays: Sequence[np.ndarray[Any, Any]], stamp: Stamp, timeout: float | None = None) -> bool:
        """Reserve, copy ``arrays`` in, commit; False where reserve would have given None.

        Raises SchemaMismatch, before anything is copied, where a shape or a dtype is not the channel's.
        """
        ...

    @property
    def committed(self) -> int:
        """Messages ever committed; where memory is shared, those of earlier writers too."""
        ...

    @property
    def unreleased(self) -> int:
        """Messages committed and not yet released by the reader; 0 for LATEST."""
        ...

    def close(self) -> None:
        """No more will come: the reader gets what there is, then ChannelClosed. May be called twice."""
        ...


class Reader(Protocol):
    """The receiving end. A new one, opened where the old one died, goes on after the last message released."""

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message in order; None where none came within ``timeout`` seconds (0: at once; None: for ever).

        Several may be held at once, up to the channel's capacity. BLOCK: the arrays are the slot's own. LATEST: the
        newest that this reader has not seen, never torn, in buffers that are the reader's until its next receive that
        gives a message.
        Raises ChannelClosed when the writer closed and everything has been received.
        """
        ...

    def release(self, message: Message) -> None:
        """Give the slot back, and ring the writer; in the order received. For LATEST it does nothing."""
        ...

    @property
    def unread(self) -> int:
        """Messages that could be received at once."""
        ...

    def close(self) -> None:
        """Take no more: the writer's next reserve raises ChannelClosed. May be called twice."""
        ...


class Created(Protocol):
    """A channel as its launcher holds it: what must live as long as any end may be opened."""

    @property
    def spec(self) -> ChannelSpec:
        """With its address filled in: what the ends open."""
        ...

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors that a child process must inherit (``subprocess``'s ``pass_fds``) to open an end."""
        ...

    @property
    def committed(self) -> int:
        """Messages ever committed, after any crash; 0 over tcp, where only the ends know."""
        ...

    def close(self) -> None:
        """Give the memory or the port back. Ends that are open stay usable; new ones cannot be opened."""
        ...
