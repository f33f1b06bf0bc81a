"""Messages whose large arrays are on their way to a learner's device before their batch is complete.

What is in host memory when a program is called is copied to its device then, and the program waits for it. Here it is
sent as soon as it has come: that of the batch that is being collected, and, while the device trains on one batch, what
is there for the next. The host's memory stays the message's until it is released, as it would be without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from weft.runtimes.stage import Leg
from weft.streams.channel import Message, Stamp

LARGE_ARRAY_BYTES = 2**16
"""Bytes of an array that is worth a transfer of its own."""
Key = tuple[Leg, Stamp]


def pays(replicas: int) -> bool:
    """Whether a program of so many learners is helped by it: none on a CPU, where there is nowhere to send it to.

    What lies over several learners' devices is put together for all of them when the batch is complete.
    """
    return replicas == 1 and jax.default_backend() != "cpu"


class Brought:
    """What has been sent to this process's first device, by leg and stamp."""

    def __init__(self) -> None:
        self._arrays: dict[Key, list[Any]] = {}

    def bring(self, leg: Leg, messages: Iterable[Message]) -> None:
        """Send the large arrays of those messages that are not on their way yet. Does not wait for them."""
        for message in messages:
            if (leg, message.stamp) not in self._arrays:
                arrays = [jax.device_put(x) if x.nbytes >= LARGE_ARRAY_BYTES else x for x in message.arrays]
                self._arrays[leg, message.stamp] = arrays

    def arrays(self, leg: Leg, message: Message) -> Sequence[Any]:
        """A message's arrays: on the device what was brought there, the others where they lie."""
        return self._arrays.get((leg, message.stamp), message.arrays)

    def keep(self, still: Iterable[Key]) -> None:
        """Forget all messages but these."""
        self._arrays = {key: self._arrays[key] for key in still if key in self._arrays}
