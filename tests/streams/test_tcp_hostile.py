"""Sockets whose own peers talk nonsense: it is dropped and counted, and the channel goes on.

Peers that do not belong to the channel are in ``test_strangers.py``.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq
from channels import BLOCK, LATEST, SIMPLE, Channel, arrays, eventually, got, nothing_leaks
from insider import Insider

from weft.core.errors import ChannelError, ConfigError
from weft.streams.channel import ChannelSpec, Reader, Stamp, Writer
from weft.streams.endpoints import parse_address
from weft.streams.registry import SOCKET_SCHEMES, create
from weft.streams.schema import fingerprint
from weft.streams.tally import TALLY
from weft.streams.wire import Ack, Ask, Bye, Data, Hello, Open, decode, encode

FINGERPRINT = fingerprint(SIMPLE)
NOTHING = (0, 0, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


def unexpected(end: Any) -> int:
    """Frames that the end's link dropped because they made no sense."""
    return int(end._attached.link.unexpected)


class Exploit:
    """Unpickling one of these would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a payload was unpickled",))


def works(writer: Writer, reader: Reader, number: int) -> None:
    assert writer.send(arrays(number), Stamp(sequence=number), 5)
    message = got(reader)
    while message.stamp.sequence != number:  # of LATEST, whatever came before
        message = got(reader)
    np.testing.assert_array_equal(message.arrays[1], arrays(number)[1])
    reader.release(message)


def nonsense(token: str, size: int) -> list[list[Any]]:
    rng = np.random.default_rng(0)
    noise = [rng.bytes(int(n)) for n in rng.integers(1, 2000, 40)]
    payload = bytes(size)
    return [
        *([frame] for frame in noise),
        [encode(Bye())[:-1]],
        [b"\x00" * (1 << 18)],
        noise[:7],
        [b"", b"", b""],
        [pickle.dumps(Exploit())],
        [Data(0, NOTHING), pickle.dumps(Exploit()).ljust(size, b"\0")],
        [Data(0, NOTHING), payload],  # from somebody who has not opened
        [Data(0, NOTHING)],
        [encode(["data", -1, NOTHING]), payload],
        [encode(["data", 1 << 63, NOTHING]), payload],
        [encode(["data", 0, ((1 << 64) - 1,) * 6])],
        [encode({"kind": "data"})],
        [Open("another token", FINGERPRINT, 1, 0)],
        [Open(token, "another fingerprint", 1, 0)],
        [Ask("another token", FINGERPRINT, 1, 0)],
        [Ack(1 << 62)],
        [b"\x91" * 100_000],  # nested arrays
    ]


@pytest.mark.parametrize("delivery", [BLOCK, LATEST])
@pytest.mark.parametrize("scheme", SOCKET_SCHEMES)
def test_nonsense_is_dropped_and_counted(delivery: Any, scheme: str) -> None:
    before = TALLY.frames
    with Channel(scheme, delivery=delivery) as channel:
        writer, reader = channel.ends()
        works(writer, reader, 0)
        bound = writer if delivery is LATEST else reader
        with Insider(zmq.DEALER, channel) as insider:
            sent = nonsense(insider.address.token, channel.spec.message_bytes)
            for frames in sent:
                insider.say(*frames)
            assert eventually(lambda: unexpected(bound) == len(sent))
            works(writer, reader, 1)
        works(writer, reader, 2)
        assert unexpected(bound) == len(sent)
        assert TALLY.frames - before == len(sent)


def test_a_writer_that_lies() -> None:
    """It knows the token and opens; then it says what no writer says."""
    with Channel("tcp", capacity=2) as channel:
        reader = channel.reader()
        with Insider(zmq.DEALER, channel) as insider:
            size = channel.spec.message_bytes
            insider.say(Open(insider.address.token, FINGERPRINT, 1, 0))
            lies: list[list[Any]] = [
                [Data(1, NOTHING), bytes(size)],  # leaves one out
                [Data(0, NOTHING), bytes(size - 1)],
                [Data(0, NOTHING), bytes(size + 1)],
                [Data(0, NOTHING), bytes(size), b"more"],
                [Data(0, NOTHING), b""],
            ]
            for frames in lies:
                insider.say(*frames)
            for place in range(3):  # the third is more than there is room for
                insider.say(Data(place, (place, 0, 0, 0, 0, 0)), bytes([place]) * size)
            insider.say(Data(0, NOTHING), bytes(size))  # once more
            assert eventually(lambda: unexpected(reader) == len(lies) + 2)
            for place in range(2):
                message = got(reader)
                assert (message.place, message.stamp.producer) == (place, place)
                assert (message.arrays[1].view(np.uint8) == place).all()
                reader.release(message)
        works(channel.writer(), reader, 2)  # an honest one takes over


def test_a_reader_that_lies() -> None:
    with Channel("tcp", capacity=2) as channel, Insider(zmq.ROUTER, channel) as insider:
        writer = channel.writer()
        writer.send(arrays(0), Stamp())
        peer, probe = insider.hear()
        assert probe == b""
        insider.say(peer, Hello("another token", FINGERPRINT, 0, -1))
        insider.say(peer, Ack(1))  # before anything was sent
        assert eventually(lambda: unexpected(writer) == 2)
        insider.say(peer, Hello(insider.address.token, FINGERPRINT, 0, -1))
        opened = decode(insider.hear()[1])
        assert isinstance(opened, Open)
        insider.say(peer, Ack(0))
        assert isinstance(decode(insider.hear()[1]), Data)
        for lie in (Ack(2), Data(0, NOTHING), Open("", "", 0, 0)):
            insider.say(peer, lie)
        assert eventually(lambda: unexpected(writer) == 5)
        assert writer.unreleased == 1
        insider.say(peer, Ack(1))
        assert eventually(lambda: writer.unreleased == 0)
        insider.say(peer, Ack(0))  # takes a release back
        assert eventually(lambda: unexpected(writer) == 6)
        insider.say(peer, Bye())
        assert isinstance(decode(insider.hear()[1]), Bye)


def test_a_writer_opens_while_words_of_the_one_before_are_on_their_way() -> None:
    """The reader's Hello is out of date by then: it says another, and nothing of either writer is lost."""
    with Channel("tcp", capacity=2) as channel:
        reader = channel.reader()
        size = channel.spec.message_bytes
        with Insider(zmq.DEALER, channel) as first, Insider(zmq.DEALER, channel) as second:
            token = first.address.token
            first.say(Open(token, FINGERPRINT, 1, 0))
            assert decode(first.hear()[0]) == Ack(0)
            second.say(b"")  # ZeroMQ's probe
            assert decode(second.hear()[0]) == Hello(token, FINGERPRINT, 1, 0)
            first.say(Data(0, NOTHING), bytes(size))
            assert eventually(lambda: reader.unread == 1)
            second.say(Open(token, FINGERPRINT, 2, 0))
            assert decode(second.hear()[0]) == Hello(token, FINGERPRINT, 1, 1)
            second.say(Open(token, FINGERPRINT, 2, 1))
            second.say(Data(1, (9, 0, 0, 0, 0, 0)), bytes(size))
            for producer in (0, 9):
                message = got(reader)
                assert message.stamp.producer == producer
                reader.release(message)
            assert unexpected(reader) == 0


def test_a_writer_begins_where_the_last_hello_says() -> None:
    """As long as the reader has not taken it up; nothing is sent before there is known to be room."""
    with Channel("tcp", capacity=2) as channel, Insider(zmq.ROUTER, channel) as insider:
        token = insider.address.token
        writer = channel.writer()
        writer.send(arrays(0), Stamp(sequence=4))
        peer, _ = insider.hear()
        opened = None
        for next_place in (5, 6):
            insider.say(peer, Hello(token, FINGERPRINT, 1, next_place))
            opened = decode(insider.hear()[1])
            assert isinstance(opened, Open)
            assert opened.start == next_place
        insider.say(peer, Ack(4))  # it holds two of the writer before
        assert not insider.socket.poll(100)
        insider.say(peer, Ack(5))
        data = decode(insider.hear()[1])
        assert isinstance(data, Data)
        assert (data.place, data.stamp[2]) == (6, 4)
        assert opened is not None
        insider.say(peer, Hello(token, FINGERPRINT, opened.session, 7))  # connected anew: it has had our first
        again = decode(insider.hear()[1])
        assert isinstance(again, Open)
        assert again.start == 7
        insider.say(peer, Bye())
        assert isinstance(decode(insider.hear()[1]), Bye)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "*", "example.com"])
def test_only_loopback(host: str) -> None:
    spec = ChannelSpec("unroll", SIMPLE, 2, BLOCK, "tcp", f"{host}:0")
    with pytest.raises(ConfigError, match="is not a loopback address"):
        create(spec)


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "example.com", "224.0.0.1"])
def test_only_one_address(host: str) -> None:
    """Between hosts it is another than loopback's (tests/cluster), but never all of a machine's, and no name."""
    with Channel("tcp") as channel:
        _, _, token = channel.spec.address.partition("/")
        with pytest.raises(ConfigError, match="not the IPv4 address of one interface"):
            channel.reader(address=f"{host}:5555/{token}")


def test_the_port_stays_ours_and_has_one_owner() -> None:
    with Channel("tcp") as channel:
        channel.reader()
        with pytest.raises(ChannelError, match=r"unroll.*cannot be used.*one owner at a time"):
            channel.reader()
        address = parse_address(channel.spec.address, "unroll")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((address.host, address.port))


def test_a_wrong_token_never_meets() -> None:
    with Channel("tcp") as channel:
        reader = channel.reader()
        address = parse_address(channel.spec.address, "unroll")
        stray = channel.writer(address=str(address._replace(token="abcd")))
        stray.send(arrays(0), Stamp())
        assert eventually(lambda: unexpected(stray) > 0)
        assert reader.receive(0.05) is None


def test_a_fault_of_our_own_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in a link is no peer's doing: whoever waits is told, and the other channels go on."""
    with Channel("tcp") as broken, Channel("tcp") as sound:
        writer, reader = broken.ends()
        works(writer, reader, 0)

        def fail() -> None:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(reader._attached.link, "turn", fail)  # type: ignore[attr-defined]
        writer.send(arrays(1), Stamp())
        assert eventually(lambda: reader._attached.error is not None)  # type: ignore[attr-defined]
        with pytest.raises(ChannelError, match=r"socket failed.*a mistake"):
            reader.receive(5)
        works(*sound.ends(), 0)
