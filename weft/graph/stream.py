"""Streams: the edges of the graph, with their delivery rules and their sizes."""

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


@dataclass(frozen=True)
class Stream:
    """An edge from one fragment's output port to another's input port of the same name."""

    name: str
    source: str
    target: str
    schema: Schema
    delivery: Delivery = Delivery.BLOCK
    rhythm: Rhythm = Rhythm.UNROLL

    @property
    def message_bytes(self) -> int:
        """The size of one message, all arrays added up."""
        return schema_bytes(self.schema)


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
