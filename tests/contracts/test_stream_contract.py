"""What every channel promises, whatever carries it: one suite for all schemes.

Crashes of either end are in tests/streams/test_channel_crashes.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from channels import BLOCK, COMPRESSED, LATEST, SHARED, SIMPLE, Channel, arrays, eventually, got, nothing_leaks

from weft.core.delivery import Delivery
from weft.core.errors import ChannelClosed, ChannelError, SchemaMismatch, UnknownName
from weft.core.trees import tree_leaves
from weft.streams import compression
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Message, Reader, Stamp, Writer
from weft.streams.registry import LOCAL_SCHEMES, SCHEMES, SOCKET_SCHEMES, create, open_writer
from weft.streams.schema import ArraySpec, array_specs


@pytest.fixture(params=[*SCHEMES, *(scheme + SHARED for scheme in SOCKET_SCHEMES), "tcp" + COMPRESSED])
def scheme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param.endswith(COMPRESSED):  # every array, however small and however little it shrinks
        monkeypatch.setattr(compression, "KINDS", {*KINDS, "complex64"})
        monkeypatch.setattr(compression, "LEAST", 1)
        monkeypatch.setattr(compression, "_WORTH", 1.0)
    return str(request.param)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


# Order and contents


def test_messages_come_whole_and_in_order(scheme: str) -> None:
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        for number in range(20):
            assert writer.send(arrays(number), Stamp(1, 2, number, number * 3, 5, -6))
            message = got(reader)
            assert message.stamp == Stamp(1, 2, number, number * 3, 5, -6)
            assert message.place == number
            for array, expected in zip(message.arrays, arrays(number), strict=True):
                assert array.dtype == expected.dtype
                np.testing.assert_array_equal(array, expected)
            reader.release(message)
        assert eventually(lambda: writer.unreleased == 0)


KINDS = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
EXTREMES = [-(1 << 63), -1, 0, 1, 3, (1 << 63) - 1]


@pytest.mark.parametrize("delivery", list(Delivery))
def test_every_dtype_and_shape(scheme: str, delivery: Delivery) -> None:
    rng = np.random.default_rng(0)
    shapes = [(), (0,), (1,), (3, 0, 2), (5, 7), (2, 3, 4)]
    tree = {
        f"{kind}-{i}": np.asarray(rng.integers(0, 2, shape)).astype(kind)
        for kind in [*KINDS, "complex64"]
        for i, shape in enumerate(shapes)
    }
    specs = array_specs(tree)
    with Channel(scheme, specs, delivery=delivery) as channel:
        writer, reader = channel.ends()
        writer.send(tree_leaves(tree), Stamp(*EXTREMES))
        message = got(reader)
        assert message.stamp == tuple(EXTREMES)
        for array, expected in zip(message.arrays, tree_leaves(tree), strict=True):
            assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
            assert array.ctypes.data % 64 == 0 or array.size == 0
            np.testing.assert_array_equal(array, expected)


def test_large_messages(scheme: str) -> None:
    """Large enough that a socket does not copy them."""
    specs = (ArraySpec("a", (3, 1 << 16), "float32"), ArraySpec("b", (5,), "int64"))
    with Channel(scheme, specs, capacity=3) as channel:
        writer, reader = channel.ends()
        held = []
        for number in range(8):
            message = [np.full(spec.shape, number, spec.dtype) for spec in specs]
            assert writer.send(message, Stamp(sequence=number), 5)
            held.append(got(reader))
            if len(held) == 3:
                for older in held:
                    assert all((array == older.place).all() for array in older.arrays)
                reader.release(held.pop(0))


@pytest.mark.parametrize("specs", [(), (ArraySpec("", (0, 3), "float32"),), (ArraySpec("x", (), "bool"),)])
def test_messages_of_next_to_nothing(scheme: str, specs: Any) -> None:
    """A stamp alone is a message as well."""
    with Channel(scheme, specs, capacity=2) as channel:
        writer, reader = channel.ends()
        for number in range(5):
            assert writer.reserve(5) is not None
            writer.commit(Stamp(sequence=number))
            message = got(reader)
            assert message.stamp.sequence == number
            reader.release(message)


def test_written_in_place(scheme: str) -> None:
    with Channel(scheme, capacity=1) as channel:
        writer, reader = channel.ends()
        slot = writer.reserve()
        assert slot is not None
        slot[0][...] = 4
        assert writer.reserve(0) is slot  # until it is committed
        slot[1][...] = 9
        assert reader.receive(0) is None
        writer.commit(Stamp())
        message = got(reader)
        assert (message.arrays[0] == 4).all()
        assert (message.arrays[1] == 9).all()
        with pytest.raises(ChannelError, match=r"unroll.*commit without reserve"):
            writer.commit(Stamp())


def test_several_are_held_at_once(scheme: str) -> None:
    with Channel(scheme, capacity=3) as channel:
        writer, reader = channel.ends()
        for number in range(3):
            writer.send(arrays(number), Stamp(sequence=number), 0)
        held = [got(reader) for _ in range(3)]
        assert reader.receive(0.01) is None
        assert writer.unreleased == 3
        assert not writer.send(arrays(9), Stamp(), 0.01)
        for number, message in enumerate(held):
            np.testing.assert_array_equal(message.arrays[1], arrays(number)[1])
        with pytest.raises(ChannelError, match="release"):
            reader.release(held[1])
        with pytest.raises(ChannelError, match="held by this reader"):
            reader.receive(None)
        for message in held:
            reader.release(message)
        assert writer.send(arrays(3), Stamp(), 5)
        assert got(reader).place == 3


# A reader that is slow


def test_a_full_channel_makes_the_writer_wait(scheme: str) -> None:
    with Channel(scheme, capacity=2) as channel:
        writer, reader = channel.ends()
        for number in range(2):
            assert writer.send(arrays(number), Stamp(), 0)
        assert writer.reserve(0) is None
        began = time.monotonic()
        assert writer.reserve(0.1) is None
        assert 0.09 < time.monotonic() - began < 3.0
        message = got(reader)

        def release() -> None:
            time.sleep(0.1)
            reader.release(message)

        thread = threading.Thread(target=release)
        thread.start()
        assert writer.reserve(None) is not None
        assert time.monotonic() - began > 0.19
        thread.join()
        assert writer.unreleased == 1


def test_a_reader_waits_for_what_is_to_come(scheme: str) -> None:
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        began = time.monotonic()
        assert reader.receive(0) is None
        assert reader.receive(0.1) is None
        assert 0.09 < time.monotonic() - began < 3.0
        sender = threading.Timer(0.1, lambda: writer.send(arrays(1), Stamp(sequence=1)))
        sender.start()
        message = reader.receive(None)
        assert message is not None
        assert message.stamp.sequence == 1
        sender.join()


def test_latest_gives_the_newest_and_skips_the_rest(scheme: str) -> None:
    with Channel(scheme, capacity=1, delivery=LATEST) as channel:
        writer, reader = channel.ends()
        assert reader.receive(0) is None
        for number in range(10):
            assert writer.send(arrays(number), Stamp(version=number), 0)
        first = newest(reader, 9)
        np.testing.assert_array_equal(first.arrays[1], arrays(9)[1])
        assert reader.receive(0.01) is None  # it has been seen
        reader.release(first)
        assert reader.unread == 0
        writer.send(arrays(10), Stamp(version=10), 0)
        assert eventually(lambda: reader.unread == 1)
        assert newest(reader, 10).stamp.version == 10
        assert writer.unreleased == 0


def newest(reader: Reader, version: int) -> Message:
    """Receive until ``version`` comes; over a socket, earlier ones may come before it."""
    versions = [-1]
    while versions[-1] < version:
        message = got(reader)
        versions.append(message.stamp.version)
    assert versions == sorted(versions)
    return message


def test_two_readers_of_the_latest(scheme: str) -> None:
    with Channel(scheme, delivery=LATEST) as channel:
        writer, one = channel.ends()
        writer.send(arrays(1), Stamp(version=1))
        newest(one, 1)
        other = channel.reader(channel.bells[0])
        assert newest(other, 1).place == 0  # who comes later gets the newest at once
        one.close()
        writer.send(arrays(2), Stamp(version=2))  # and who goes is not missed
        np.testing.assert_array_equal(newest(other, 2).arrays[1], arrays(2)[1])


def test_the_latest_is_never_torn(scheme: str) -> None:
    specs = (ArraySpec("", (1 << 14,), "int64"),)
    with Channel(scheme, specs, capacity=1, delivery=LATEST) as channel:
        writer, reader = channel.ends()
        over = threading.Event()

        def write() -> None:
            number = 0
            while not over.is_set():
                slot = writer.reserve(0)
                assert slot is not None
                slot[0][:] = number
                writer.commit(Stamp(version=number))
                number += 1
                if number % 50 == 0:
                    time.sleep(0.001)

        thread = threading.Thread(target=write)
        thread.start()
        versions = []
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            message = got(reader)
            assert (message.arrays[0] == message.stamp.version).all()
            versions.append(message.stamp.version)
        over.set()
        thread.join()
        assert len(versions) > 5
        assert versions == sorted(set(versions))


# Closing


def test_the_writer_closes(scheme: str) -> None:
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        for number in range(3):
            writer.send(arrays(number), Stamp())
        writer.close()
        writer.close()
        for number in range(3):
            message = got(reader)
            np.testing.assert_array_equal(message.arrays[1], arrays(number)[1])
            reader.release(message)
        with pytest.raises(ChannelClosed, match="unroll"):
            reader.receive(5)
        with pytest.raises(ChannelClosed):
            writer.reserve(0)


def test_the_writer_of_the_latest_closes(scheme: str) -> None:
    with Channel(scheme, delivery=LATEST) as channel:
        writer, reader = channel.ends()
        writer.send(arrays(0), Stamp(version=0))
        newest(reader, 0)
        writer.send(arrays(1), Stamp(version=1))
        writer.close()
        assert newest(reader, 1).stamp.version == 1
        with pytest.raises(ChannelClosed):
            reader.receive(5)


def test_the_reader_closes(scheme: str) -> None:
    with Channel(scheme, capacity=1) as channel:
        writer, reader = channel.ends()
        writer.send(arrays(0), Stamp())
        got(reader)
        closer = threading.Timer(0.05, reader.close)
        closer.start()
        with pytest.raises(ChannelClosed, match="reader was closed"):
            writer.reserve(5)
        closer.join()
        with pytest.raises(ChannelClosed):
            reader.receive(0)


def test_a_waiting_reader_hears_of_the_close(scheme: str) -> None:
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        writer.send(arrays(0), Stamp())
        reader.release(got(reader))
        closer = threading.Timer(0.05, writer.close)
        closer.start()
        with pytest.raises(ChannelClosed):
            reader.receive(None)
        closer.join()


def test_an_end_opened_anew_goes_on(scheme: str) -> None:
    """In one process, after an orderly close: the other end does not notice."""
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        for number in range(3):
            writer.send(arrays(number), Stamp(sequence=number))
        reader.release(got(reader))
        assert got(reader).place == 1
        if channel.spec.scheme in SOCKET_SCHEMES:  # the release is on its way
            assert eventually(lambda: writer.unreleased == 2)
        reader.close()
        again = channel.reader()
        assert eventually(lambda: _opened(writer))
        for number in (1, 2):
            message = got(again)
            assert (message.place, message.stamp.sequence) == (number, number)
            again.release(message)
        assert eventually(lambda: writer.unreleased == 0)
        writer.close()
        with pytest.raises(ChannelClosed):
            again.receive(5)
        successor = channel.writer()
        assert eventually(lambda: _alive(again))
        successor.send(arrays(3), Stamp(sequence=3))
        message = got(again)
        assert (message.place, message.stamp.sequence) == (3, 3)


def _opened(writer: Writer) -> bool:
    try:
        writer.reserve(0)
    except ChannelClosed:
        return False
    return True


def _alive(reader: Reader) -> bool:
    try:
        assert reader.receive(0) is None
    except ChannelClosed:
        return False
    return True


# What is refused


def test_arrays_that_do_not_fit(scheme: str) -> None:
    with Channel(scheme) as channel:
        writer, reader = channel.ends()
        good = arrays(0)
        for bad, words in [
            ([good[0]], r"array 'b' is missing"),
            ([*good, good[0]], r"number 2' is too much"),
            ([good[0].T, good[1]], r"array 'a': expected shape \(3, 2\), and \(2, 3\) came"),
            ([good[0].astype(np.float64), good[1]], r"array 'a': expected dtype float32, and float64 came"),
        ]:
            with pytest.raises(SchemaMismatch, match=r"channel 'unroll'.*" + words):
                writer.send(bad, Stamp())
        writer.send(good, Stamp(sequence=1))
        assert got(reader).stamp.sequence == 1


@pytest.mark.parametrize("delivery", [BLOCK, LATEST])
def test_ends_with_other_arrays(scheme: str, delivery: Delivery) -> None:
    """Whoever opens second finds out: in memory at once, over a socket when the two have met."""
    other = array_specs({"a": np.zeros((3, 3), np.float32), "b": np.zeros(4, np.int64)})
    with Channel(scheme, delivery=delivery) as channel:

        def meet() -> None:
            if delivery is BLOCK:
                channel.reader()
                writer = channel.writer(arrays=other)
                eventually(lambda: not writer.send([np.zeros((3, 3), np.float32), arrays(0)[1]], Stamp(), 0))
                writer.reserve(5)
            else:
                channel.writer()
                channel.reader(arrays=other).receive(5)

        with pytest.raises(SchemaMismatch, match=r"array 'a': expected shape \(3, 2\), and \(3, 3\) came"):
            meet()


def test_an_unknown_scheme() -> None:
    with pytest.raises(UnknownName, match=r"'shmem'.*Did you mean 'shm'.*unroll"):
        create(ChannelSpec("unroll", SIMPLE, 1, BLOCK, "shmem"))


def test_which_schemes_are_for_one_host() -> None:
    assert set(SCHEMES) - set(LOCAL_SCHEMES) == {"tcp"}
    assert set(LOCAL_SCHEMES) == {"inproc", "shm", "ipc"}


def test_no_address_yet(scheme: str) -> None:
    with pytest.raises(ChannelError, match=r"unroll.*create\(\) first"):
        open_writer(
            ChannelSpec("unroll", SIMPLE, 1, BLOCK, scheme.removesuffix(SHARED).removesuffix(COMPRESSED)),
            Bell.from_fd(-1),
            [],
        )
