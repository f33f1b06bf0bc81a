"""Streams: the edges of the graph, with their delivery rules, how replicas share them, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from weft.core.delivery import Delivery as Delivery  # part of a stream: importable from here as well
from weft.graph.fragment import Schema


class Rhythm(Enum):
    """How often a message passes."""

    STEP = "step"  # every environment step of a batch
    UNROLL = "unroll"  # every T steps
    UPDATE = "update"  # every learn call


class Sharing(Enum):
    """How the replicas of the reader share what the replicas of the writer send."""

    ENVIRONMENT = "environment"  # the environment's index decides which replica gets it
    ANY = "any"  # whichever is free; in lockstep by sequence number
    ALL = "all"  # every replica gets every message


@dataclass(frozen=True)
class Stream:
    """An edge from one fragment's output port to another's input port of the same name.

    Unless told, the newest message goes to all replicas (params), and a message of environments by their index.
    """

    name: str
    source: str
    target: str
    schema: Schema
    delivery: Delivery = Delivery.BLOCK
    rhythm: Rhythm = Rhythm.UNROLL
    sharing: Sharing | None = None
    feedback: bool = False  # goes against the data, back to a store: nothing waits for it

    def __post_init__(self) -> None:
        if self.sharing is None:
            usual = Sharing.ALL if self.delivery is Delivery.LATEST else Sharing.ENVIRONMENT
            object.__setattr__(self, "sharing", usual)

    @property
    def message_bytes(self) -> int:
        """The size of one message, all arrays added up."""
        return schema_bytes(self.schema)

    @property
    def counted(self) -> bool:
        """Whether its messages are samples on their way to learn, each of which the ledger accounts for."""
        return self.delivery is Delivery.BLOCK and self.rhythm is not Rhythm.STEP and not self.feedback


def base_name(name: str) -> str:
    """What a fragment, a port or a stream is, without whose: ``unroll`` for ``unroll.hiders``."""
    return name.partition(".")[0]


def schema_bytes(schema: Schema) -> int:
    """The bytes of one message of a schema."""
    import jax

    leaves = jax.tree.leaves(schema)
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) * _itemsize(leaf.dtype) for leaf in leaves)


def _itemsize(dtype: object) -> int:
    try:
        return np.dtype(dtype).itemsize  # type: ignore[call-overload, no-any-return]
    except TypeError:  # a PRNG key: two words
        return 8
