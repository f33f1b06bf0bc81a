"""Strangers at a tcp port: they are told nothing, they change nothing, and they cost a count.

A stranger is whoever lacks the channel's keys: another user of the machine, or a program that mistook the port.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import zmq
from channels import BLOCK, LATEST, SIMPLE, Channel, arrays, eventually, got, nothing_leaks

from weft.core.errors import ChannelError, ConfigError
from weft.streams.channel import ChannelSpec, Reader, Stamp, Writer
from weft.streams.endpoints import Address, parse_address
from weft.streams.keys import Keys, check_curve, read_keys
from weft.streams.registry import check_scheme, create
from weft.streams.schema import fingerprint
from weft.streams.tally import TALLY
from weft.streams.wire import Ask, Bye, Data, Open, encode

NULL_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
CURVE_GREETING = NULL_GREETING.replace(b"NULL\0", b"CURVE")
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


@pytest.fixture
def strangers() -> Callable[[], int]:
    """How many were turned away since the test began."""
    before = TALLY.strangers
    return lambda: TALLY.strangers - before


def works(writer: Writer, reader: Reader, number: int) -> None:
    assert writer.send(arrays(number), Stamp(sequence=number), 5)
    message = got(reader)
    while message.stamp.sequence != number:  # of LATEST, whatever came before
        message = got(reader)
    np.testing.assert_array_equal(message.arrays[1], arrays(number)[1])
    reader.release(message)


def where(channel: Channel) -> tuple[Address, Keys]:
    address = parse_address(channel.spec.address, channel.spec.name)
    keys = address.keys(channel.spec.name)
    assert keys is not None
    return address, keys


@contextmanager
def stranger_at() -> Iterator[Any]:
    """A ZeroMQ socket of somebody else's, not connected yet."""
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.PROBE_ROUTER, 1)
    try:
        yield stranger
    finally:
        context.destroy(linger=0)


def without(socket: Any, keys: Keys) -> None:
    """No security at all, as before there were keys."""


def plain(socket: Any, keys: Keys) -> None:
    socket.setsockopt(zmq.PLAIN_USERNAME, b"weft")
    socket.setsockopt(zmq.PLAIN_PASSWORD, b"weft")


def made_up(socket: Any, keys: Keys) -> None:
    """Keys of its own: it does not know who listens."""
    public, secret = zmq.curve_keypair()
    socket.setsockopt(zmq.CURVE_SERVERKEY, public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)


def unknown_client(socket: Any, keys: Keys) -> None:
    """It has learned the listener's public key, and has a good pair of its own."""
    public, secret = zmq.curve_keypair()
    socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)


@pytest.mark.parametrize("delivery", [BLOCK, LATEST])
@pytest.mark.parametrize("disguise", [without, plain, made_up, unknown_client])
def test_a_stranger_is_told_nothing_and_changes_nothing(
    disguise: Callable[[Any, Keys], None], delivery: Any, strangers: Callable[[], int]
) -> None:
    """It says all that an end would say, with the right token and schema: more than it can know."""
    with Channel("tcp", delivery=delivery) as channel, stranger_at() as stranger:
        writer, reader = channel.ends()
        works(writer, reader, 0)
        address, keys = where(channel)
        disguise(stranger, keys)
        stranger.connect(address.endpoint)
        mine = fingerprint(SIMPLE)
        spoken: list[list[bytes]] = [
            [encode(Ask(address.token, mine, 0, 0))],
            [encode(Open(address.token, mine, 1, 0))],
            [encode(Data(1, (0,) * 6)), bytes(channel.spec.message_bytes)],
            [encode(Bye())],
        ]
        for frames in spoken:
            with suppress(zmq.Again):  # it may have been turned away by now
                stranger.send_multipart(frames, zmq.NOBLOCK)
        assert eventually(lambda: strangers() >= 1)
        works(writer, reader, 1)
        assert not stranger.poll(100)
        bound: Any = writer if delivery is LATEST else reader
        assert bound._attached.link.unexpected == 0  # nothing that it said came as far as the channel


RAW = {
    "noise": np.random.default_rng(0).bytes(5000),
    "an old ZeroMQ": b"\x01\x00\x05\x00hello",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "ready, without keys": NULL_GREETING + b"\x04" + bytes([len(READY)]) + READY,
    "ready, where keys are due": CURVE_GREETING + b"\x04" + bytes([len(READY)]) + READY,
    "a hello of noise": CURVE_GREETING + b"\x04\xc8\x05HELLO\x01\x00" + np.random.default_rng(1).bytes(193),
    "four gibibytes": CURVE_GREETING + b"\x02" + struct.pack(">Q", 1 << 32) + b"x" * 1000,
    "a command of eight exbibytes": CURVE_GREETING + b"\x06" + struct.pack(">Q", (1 << 63) - 1) + b"x" * 1000,
}


@pytest.mark.parametrize("sent", RAW.values(), ids=RAW.keys())
def test_bytes_of_another_protocol(sent: bytes, strangers: Callable[[], int]) -> None:
    """ZeroMQ hangs up, having allocated nothing; each connection is counted once."""
    with Channel("tcp") as channel:
        writer, reader = channel.ends()
        works(writer, reader, 0)
        address, _ = where(channel)
        for number in range(1, 4):
            with socket.create_connection((address.host, address.port), timeout=10) as raw:
                raw.sendall(sent)
                try:
                    while raw.recv(4096):  # until ZeroMQ hangs up
                        pass
                except ConnectionResetError:
                    pass
            works(writer, reader, number)
            assert eventually(lambda number=number: strangers() == number)


def test_connections_that_say_nothing(strangers: Callable[[], int]) -> None:
    """Hundreds of them hold few of the descriptors that a worker may open; who belongs here is still served."""
    with Channel("tcp", delivery=LATEST) as channel:
        writer, reader = channel.ends()
        works(writer, reader, 0)
        address, _ = where(channel)
        door = writer._attached.link.line.door  # type: ignore[attr-defined]
        silent = [socket.socket() for _ in range(600)]
        try:
            for connection in silent:
                connection.setblocking(False)
                connection.connect_ex((address.host, address.port))
            assert eventually(lambda: door.shut)
            works(writer, reader, 1)
            time.sleep(0.2)
            few = door.undecided
            time.sleep(0.2)
            assert door.undecided == few < len(silent)  # the others wait in the kernel
        finally:
            for connection in silent:
                connection.close()
        assert eventually(lambda: not door.shut)
        assert strangers() >= 64
        late = channel.reader()
        assert got(late).stamp.sequence == 1
        works(writer, reader, 2)


def test_one_that_came_and_one_that_belongs(strangers: Callable[[], int]) -> None:
    """A peer of the channel that connects while a stranger says nothing is not counted, and not kept waiting."""
    with Channel("tcp") as channel:
        reader = channel.reader()
        address, _ = where(channel)
        with socket.create_connection((address.host, address.port), timeout=10):
            time.sleep(0.05)
            works(channel.writer(), reader, 0)
        assert eventually(lambda: reader._attached.link.line.door.undecided == 0)  # type: ignore[attr-defined]
        assert strangers() == 1


def test_keys_are_in_a_descriptor_only() -> None:
    """Not in what is sent to workers as text, not in a repr; and they cannot be changed."""
    with Channel("tcp") as channel, Channel("tcp") as other:
        address, keys = where(channel)
        assert len(set(keys) | set(where(other)[1])) == 8  # every channel has its own
        told = f"{channel.spec.to_json()} {channel.spec!r} {channel.created!r} {address!r} {keys!r} {address}"
        for key in keys:
            assert key.decode() not in told
        assert address.guard in channel.created.fds
        with pytest.raises(OSError, match="not permitted"):
            os.pwrite(address.guard, b"x", 0)


def test_descriptors_that_were_not_inherited() -> None:
    with Channel("tcp") as channel:
        address, _ = where(channel)
        with pytest.raises(ChannelError, match=r"unroll.*descriptor 9999 holds no keys.*pass_fds"):
            channel.writer(address=str(address._replace(guard=9999)))
        with open(os.devnull) as empty, pytest.raises(ChannelError, match="0 bytes"):
            read_keys(empty.fileno(), "unroll")


def test_without_curve_there_is_no_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda capability: capability != "curve")
    with pytest.raises(ConfigError, match=r"unroll.*built without.*or use the channel 'shm' or 'ipc'"):
        create(ChannelSpec("unroll", SIMPLE, 2, BLOCK, "tcp"))
    with pytest.raises(ConfigError, match="--channel tcp"):
        check_scheme("tcp", "--channel tcp")
    check_scheme("ipc", "--channel ipc")
    with Channel("ipc") as channel:
        works(*channel.ends(), 0)
    monkeypatch.undo()
    check_curve("here")


def test_an_ipc_socket_has_no_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies in a folder, even while it is used; the long path of a folder does not matter."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with Channel("ipc") as channel:
        writer, reader = channel.ends()
        works(writer, reader, 0)
        assert list(deep.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(ChannelError, match=r"unroll.*no Unix socket.*TMPDIR"):
        create(ChannelSpec("unroll", SIMPLE, 2, BLOCK, "ipc"))
