"""Params on their way from learn to act: published after each update, pulled only when the version has moved."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.types import Array, Tree
from weft.streams.channel import Reader, Stamp, Writer


class Weights:
    """Act's copy of the params, on its device; ``version`` is -1 before the first have come."""

    def __init__(self, reader: Reader, structure: Any) -> None:
        self._reader, self._structure = reader, structure
        self.version = -1
        self.leaves: tuple[Array, ...] = ()
        self.params: Tree = None

    def refresh(self) -> bool:
        """Take newer params if there are any; does not wait. Costs one look at a counter where there are none."""
        message = self._reader.receive(0)
        if message is None:
            return False
        # A copy: the reader writes into its arrays again, and a CPU device would use them in place.
        self.leaves = tuple(jax.device_put([np.array(a) for a in message.arrays]))
        self.params = jax.tree.unflatten(self._structure, self.leaves)
        self.version = message.stamp.version
        return True


def publish(writer: Writer, params: Tree, version: int) -> None:
    """Put params where every act on this host finds them. Copies them from the device once; does not wait."""
    arrays = writer.reserve()
    assert arrays is not None  # the newest replaces what was there: there is always room
    for place, leaf in zip(arrays, jax.tree.leaves(params), strict=True):
        np.copyto(place, np.asarray(leaf))
    writer.commit(Stamp(version=version, sequence=version))
