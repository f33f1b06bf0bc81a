"""Messages that come twice, late, or out of order: dropped and counted, and the ledger stays exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from channels import LATEST, SIMPLE, Channel, arrays, eventually, got, nothing_leaks
from insider import Insider

from weft.runtimes.workers.counting.account import Account, Fate, OfWire
from weft.runtimes.workers.wires import WireReader
from weft.streams.channel import Message
from weft.streams.schema import fingerprint
from weft.streams.wire import Ack, Ask, Data, Hello, Open, decode

SAMPLES = 1000  # of a message: environment steps
MESSAGES = 1000  # which makes a million samples


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


def payload(number: int) -> bytes:
    """A message's bytes: the slot's layout, with ``number`` in its second array."""
    return b"".join(bytes(a.tobytes().ljust(64, b"\0")) for a in arrays(number))


class Faulty:
    """A writer by hand, whose network repeats, delays and reorders: 20% of each."""

    def __init__(self, insider: Insider, rng: random.Random) -> None:
        self._insider, self._rng = insider, rng
        self.extra: Counter[str] = Counter()
        insider.say(Open(insider.address.token, fingerprint(SIMPLE), 1, 0))
        self._released = 0

    def send(self, number: int) -> None:
        """Message ``number``, once for certain; it comes where the reader has room."""
        self._wait_for(number - 3)
        fault = self._rng.random()
        if fault < 0.2:
            self._count("reordered", number + 1)  # the next one comes first, and again in its turn
        self._say(number)
        if 0.2 <= fault < 0.4:
            self._count("repeated", number)
        if 0.4 <= fault < 0.6:
            self._count("late", self._rng.randrange(number + 1))

    def _count(self, kind: str, number: int) -> None:
        self.extra[kind] += 1
        self._say(number)

    def _say(self, number: int) -> None:
        self._insider.say(Data(number, (0, 0, number, 0, SAMPLES, 0)), payload(number))

    def _wait_for(self, released: int) -> None:
        while self._released < released:
            header = decode(self._insider.hear()[0])
            assert isinstance(header, Ack)
            self._released = header.released


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_a_million_samples_over_a_bad_network_are_counted_once(scheme: str) -> None:
    wire: Any = SimpleNamespace(index=0, samples=SAMPLES)
    account = Account(1, 1)
    seen: list[int] = []
    with Channel(scheme, capacity=4) as channel, Insider(zmq.DEALER, channel) as insider:
        end: Any = channel.reader()
        reader = WireReader(wire, end, account, 0)
        writer = Faulty(insider, random.Random(7))

        def take(message: Message | None) -> None:
            if message is not None:
                assert int(message.arrays[1][0]) == message.stamp.sequence
                seen.append(message.stamp.sequence)
                reader.take(message, Fate.TRAINED)

        for number in range(MESSAGES):
            writer.send(number)
            while len(seen) < number - 2:
                end._bell.wait(1.0)
                take(reader.receive())
        while len(seen) < MESSAGES:
            end._bell.wait(1.0)
            take(reader.receive())
        assert eventually(lambda: end._attached.link.unexpected == writer.extra.total())
        assert reader.receive() is None
    assert seen == list(range(MESSAGES))
    assert min(writer.extra.values()) > 0.15 * MESSAGES
    assert int(account.wires[0][OfWire.TAKEN]) == MESSAGES
    assert int(account.sides[0][Fate.TRAINED]) == MESSAGES * SAMPLES
    assert int(account.sides[0][Fate.LOST]) == 0
    account.close()


def test_params_never_go_back() -> None:
    """Of LATEST, an older message that comes late is dropped and counted."""
    with Channel("tcp", delivery=LATEST) as channel, Insider(zmq.ROUTER, channel) as insider:
        reader: Any = channel.reader()
        peer, _ = insider.hear()
        insider.say(peer, Hello(insider.address.token, fingerprint(SIMPLE), 1, 0))
        assert isinstance(decode(insider.hear()[1]), Ask)
        for version in (5, 5, 3, 4, 6, 0):
            insider.say(peer, Data(version, (0, 0, version, version, 0, 0)), payload(version))
        assert eventually(lambda: reader._attached.link.unexpected == 4)
        assert got(reader).stamp.version == 6
        assert reader.receive(0.05) is None
