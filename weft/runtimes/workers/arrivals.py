"""Which of a side's readers may have a message, without a look at each. No JAX.

Over sockets the thread that brings a message says whose it is; memory tells nothing, so readers there are always looked
at. A side with thousands of readers then pays for those that have something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from weft.streams.channel import Reader


class Arrivals:
    """Of readers, by their place in ``readers``: those that may have a message. One thread asks."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._came: deque[int] = deque()  # the pump's thread appends
        self.silent = frozenset(
            i for i, reader in enumerate(readers) if not reader.announce(partial(self._came.append, i))
        )

    def new(self) -> set[int]:
        """Those that have said something since this was asked last. ``silent`` ones never do, and may have any time."""
        came, found = self._came, set()
        for _ in range(len(came)):
            found.add(came.popleft())
        return found
