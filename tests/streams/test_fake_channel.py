"""The fake channel does wrong exactly what it is told to."""

from __future__ import annotations

import pytest
from channels import BLOCK, Channel, arrays

from weft.core.errors import ChannelClosed
from weft.streams import fake
from weft.streams.channel import Reader, Stamp


def everything(reader: Reader) -> list[int]:
    places = []
    while (message := reader.receive(0)) is not None:
        assert message.stamp.sequence == message.place
        places.append(message.place)
        reader.release(message)
    return places


def test_it_loses_duplicates_and_delays() -> None:
    with Channel("fake", capacity=8, delivery=BLOCK) as channel:
        told = fake.of(channel.spec)
        told.lose(1, 9)
        told.duplicate(2)
        told.delay(3, by=2)
        writer, reader = channel.ends()
        for number in range(7):
            assert writer.send(arrays(number), Stamp(sequence=number), 0)
        assert writer.unreleased == 6
        assert everything(reader) == [0, 2, 2, 4, 5, 3, 6]
        assert (told.committed, told.released, told.lost, writer.unreleased) == (7, 6, 1, 0)


def test_what_was_delayed_comes_before_the_close() -> None:
    with Channel("fake", capacity=2) as channel:
        fake.of(channel.spec).delay(0, by=9)
        writer, reader = channel.ends()
        for number in range(2):
            assert writer.send(arrays(number), Stamp(sequence=number), 0)
        assert writer.reserve(0) is None  # it is on its way, and takes room
        assert reader.unread == 1
        writer.close()
        assert reader.unread == 2
        first = reader.receive(0)
        assert first is not None
        assert first.place == 1
        reader.release(first)
        second = reader.receive(0)
        assert second is not None
        assert second.place == 0
        reader.release(second)
        with pytest.raises(ChannelClosed):
            reader.receive(0)
