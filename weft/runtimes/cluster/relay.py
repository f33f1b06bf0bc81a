"""The newest params from host to host: they cross once to each host, and its shared memory hands them on.

On the publisher's host the agent reads the stream as any reader does and publishes it on a socket; on each other host
the agent follows that socket and writes what comes into a channel of its own. Workers notice nothing of it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np

from weft.core.errors import ChannelClosed
from weft.runtimes.workers.counting.account import Account, OfWire
from weft.runtimes.workers.layout.blueprint import Wire
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Reader, Writer
from weft.streams.registry import open_reader, open_writer
from weft.streams.ring_writer import RingWriter

LOOK_SECONDS = 0.05
"""How long a relay waits at most before it looks: a publisher that was there before it does not ring it."""


class Relay:
    """Carries one stream of params on, in a thread. ``account``, where it stands for the publisher on its host."""

    def __init__(
        self, wire: Wire, source: ChannelSpec, target: ChannelSpec, readers: list[Bell], account: Account | None = None
    ) -> None:
        self.bell, self.failed = Bell(), ""
        self._words = None if account is None else account.wires[wire.index]
        self._room = Bell()
        self.reader: Reader = open_reader(source, self.bell)
        self.writer: Writer = open_writer(target, self._room, readers)
        self.follows = account is not None
        self._name, self._stopping = f"weft-relay-{wire.name}", False
        self._thread = self._start()

    def follow(self, source: ChannelSpec) -> None:
        """Go on with what is published elsewhere now; who reads here notices nothing."""
        self._stop()
        self.reader.close()
        self.reader, self._stopping = open_reader(source, self.bell), False
        self._thread = self._start()

    def close(self, *, leave: bool = False) -> None:
        """Stop, and close both ends. ``leave``: another writes from now on, and readers are not told of an end."""
        self._stop()
        self.reader.close()
        if leave and isinstance(self.writer, RingWriter):
            self.writer.leave()
        else:
            self.writer.close()
        self.bell.close()
        self._room.close()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        return thread

    def _stop(self) -> None:
        self._stopping = True
        self.bell.ring()
        self._thread.join()

    def _run(self) -> None:
        try:
            with suppress(ChannelClosed):  # the publisher's host has left, or this one leaves
                while not self._stopping:
                    self.bell.wait(LOOK_SECONDS)
                    self._carry()
        except Exception as error:
            self.failed = repr(error)  # the agent leaves with it: without params its workers are of no use

    def _carry(self) -> None:
        message = self.reader.receive(0)
        if message is None:
            return
        arrays = self.writer.reserve()
        assert arrays is not None
        for place, array in zip(arrays, message.arrays, strict=True):
            np.copyto(place, array)
        if self._words is not None:
            self._words[OfWire.VERSION] = message.stamp.version  # first: see ``Publisher.publish``
        self.writer.commit(message.stamp)
