"""Channels whose other end is a process that is killed, and whose place another takes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from channels import LATEST, SHARED, Channel, eventually, got, nothing_leaks
from far_end import SIZE, FarEnd, value

from weft.core.errors import ChannelClosed
from weft.streams.channel import Reader, Stamp
from weft.streams.schema import ArraySpec

ONE = (ArraySpec("", (SIZE,), "int64"),)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


def far_end(channel: Channel, role: str, first: int = 0, count: int = 0, then: str = "close") -> FarEnd:
    mine, other = channel.writer_bell, channel.reader_bell
    if role == "read":
        mine, other = other, mine
    return FarEnd(role, channel.spec, mine, other, channel.created.fds, first, count, then)


@pytest.fixture(params=["shm", "ipc", "tcp", "tcp" + SHARED])
def far(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_writer_is_killed_in_the_midst_of_writing(far: str) -> None:
    with Channel(far, ONE, capacity=4) as channel:
        reader = channel.reader()
        with far_end(channel, "write", count=2, then="half") as end:
            end.until("half")
            if far != "shm":  # what has not left a process that is killed is lost with it
                assert eventually(lambda: reader.unread == 2)
        with far_end(channel, "write", first=2, count=3) as end:
            for number in range(5):
                message = got(reader, 20)
                assert (message.place, message.stamp.sequence) == (number, number)
                assert (message.arrays[0] == number).all()
                reader.release(message)
            with pytest.raises(ChannelClosed):
                reader.receive(20)
            assert end.lines()[-1] == ["sent", "4"]


def test_a_writer_is_killed_while_the_reader_holds_all_slots(far: str) -> None:
    """The next one must not send what there is no room for: it would be dropped, and the channel stand still."""
    with Channel(far, ONE, capacity=2) as channel:
        reader = channel.reader()
        with far_end(channel, "write", count=2, then="wait"):
            held = [got(reader, 20), got(reader, 20)]
        with far_end(channel, "write", first=2, count=4) as end:
            if far != "shm":
                end.until("sent")
            time.sleep(0.2)
            for message in held:
                reader.release(message)
            for number in range(2, 6):
                message = got(reader, 20)
                assert (message.place, message.stamp.sequence) == (number, number)
                reader.release(message)
            with pytest.raises(ChannelClosed):
                reader.receive(20)


def test_a_reader_is_killed_while_it_holds_messages(far: str) -> None:
    with Channel(far, ONE, capacity=4) as channel:
        writer = channel.writer()
        for number in range(4):
            assert writer.send([value(number)], Stamp(sequence=number), 20)
        with far_end(channel, "read", count=2, then="hold") as end:
            assert end.until("held")[-1] == ["held", "2", "3"]
            assert eventually(lambda: writer.unreleased == 2)
        assert writer.unreleased == 2
        for number in range(4, 6):
            assert writer.send([value(number)], Stamp(sequence=number), 20)
        assert writer.reserve(0) is None
        with far_end(channel, "read", count=4) as end:
            assert [line[1:] for line in end.lines()] == [[str(n), str(n)] for n in range(2, 6)]
        assert eventually(lambda: writer.unreleased == 0)


def test_a_writer_of_the_latest_is_killed(far: str) -> None:
    with Channel(far, ONE, capacity=1, delivery=LATEST) as channel:
        reader = channel.reader()
        for life in range(2):
            with far_end(channel, "write", first=life * 2, count=2, then="half") as end:
                end.until("half")
                place = -1
                while place < life * 2 + 1:
                    message = got(reader, 20)
                    place = message.stamp.sequence
                    assert (message.arrays[0] == place).all()


def test_writers_killed_at_any_moment_leave_no_gap() -> None:
    """Each begins where the count says that the one before had come; every place comes once, whole."""
    rng = random.Random(0)
    with Channel("shm", ONE, capacity=3) as channel:
        reader, created, place = channel.reader(), channel.created, 0
        for _ in range(6):
            with far_end(channel, "write", first=created.committed, count=1_000_000) as end:
                end.until("sent")
                until = time.monotonic() + rng.uniform(0.0, 0.05)
                while time.monotonic() < until:
                    place = _take_next(reader, place)
                end.kill()
            while reader.unread:
                place = _take_next(reader, place)
            assert created.committed == place
        assert place > 6


def _take_next(reader: Reader, place: int) -> int:
    message = reader.receive(0.01)
    if message is None:
        return place
    assert (message.place, message.stamp.sequence) == (place, place)
    assert (message.arrays[0] == place).all()
    reader.release(message)
    return place + 1


def test_readers_killed_at_any_moment_lose_nothing() -> None:
    """Each begins where the count says that the one before had released."""
    rng = random.Random(1)
    with Channel("shm", ONE, capacity=3) as channel:
        writer, number = channel.writer(), 0

        def released() -> int:
            return number - writer.unreleased

        for _ in range(6):
            before = released()
            with far_end(channel, "read", count=1_000_000) as end:
                until = time.monotonic() + 5
                killing = None
                while time.monotonic() < until:
                    if writer.send([value(number)], Stamp(sequence=number), 0.01):
                        number += 1
                    if killing is None and released() > before:
                        killing = until = time.monotonic() + rng.uniform(0.0, 0.05)
                end.kill()
                assert end.said[0] == ["got", str(before), str(before)]
            assert channel.created.committed == writer.committed == number


def test_the_latest_from_another_process_is_never_torn(far: str) -> None:
    with Channel(far, ONE, capacity=1, delivery=LATEST) as channel:
        reader = channel.reader()
        with far_end(channel, "hammer") as end:
            versions: list[int] = []
            while not _over(reader, versions):
                pass
            last = int(end.lines()[-1][1]) - 1
        assert versions == sorted(set(versions))
        assert versions[-1] == last  # the newest comes before the close


def _over(reader: Reader, versions: list[int]) -> bool:
    try:
        message = got(reader, 20)
    except ChannelClosed:
        return True
    assert (message.arrays[0] == message.stamp.sequence).all()
    versions.append(message.stamp.sequence)
    return False
