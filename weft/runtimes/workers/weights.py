"""Params on their way from what publishes them: published after each update, pulled only when the version has moved."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.types import Array, Tree
from weft.runtimes.workers.counting.account import Account, OfWire
from weft.runtimes.workers.layout.blueprint import Wire
from weft.streams.channel import Reader, Stamp, Writer


class Weights:
    """A reader's copy of the params, on its device; ``version`` is -1 before the first have come."""

    def __init__(self, wire: Wire, reader: Reader, structure: Any, account: Account) -> None:
        self._reader, self._structure = reader, structure
        self._words = account.wires[wire.index]
        self.version = -1
        self.leaves: tuple[Array, ...] = ()
        self.params: Tree = None

    @property
    def published(self) -> int:
        """The version that was published last, whether it has come here or not."""
        return int(self._words[OfWire.VERSION])

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


class Publisher:
    """The writing end: puts params where every reader on this host finds them."""

    def __init__(self, wire: Wire, writer: Writer, account: Account) -> None:
        self._writer, self._words = writer, account.wires[wire.index]

    def publish(self, params: Tree, version: int) -> None:
        """Copies the params from the device once; does not wait.

        The version is in the account before the params are there: what they make must not look newer than they are.
        """
        arrays = self._writer.reserve()
        assert arrays is not None  # the newest replaces what was there: there is always room
        for place, leaf in zip(arrays, jax.tree.leaves(params), strict=True):
            np.copyto(place, np.asarray(leaf))
        self._words[OfWire.VERSION] = version
        self._words[OfWire.SENT] += 1
        self._writer.commit(Stamp(version=version, sequence=version))
