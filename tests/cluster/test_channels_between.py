"""Channels between hosts: bound to one address, adopted with keys, found again where a reader comes back elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from channels import BLOCK, SIMPLE, arrays, eventually, got, nothing_leaks

from weft.core.errors import ChannelError, ConfigError
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.endpoints import adopt, create_between, export
from weft.streams.registry import open_reader, open_writer
from weft.streams.tcp import TcpWriter

SPEC = ChannelSpec("unroll", SIMPLE, 4, BLOCK, "tcp")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


@pytest.mark.parametrize("interface", ["0.0.0.0", "224.0.0.1", "255.255.255.255", "example.org", "::", ""])
def test_what_is_not_one_address_is_refused(interface: str) -> None:
    with pytest.raises(ConfigError, match="not the IPv4 address of one interface"):
        create_between(SPEC, interface)


def test_an_address_that_this_machine_does_not_have_is_refused() -> None:
    with pytest.raises(ChannelError, match=r"no port on 198\.51\.100\.7"):
        create_between(SPEC, "198.51.100.7")


def test_keys_of_another_length_are_refused() -> None:
    with pytest.raises(ChannelError, match="not the keys"):
        adopt(SPEC, "127.0.0.1:1", "token", b"short")


def test_an_end_of_another_host_has_only_address_and_keys() -> None:
    created, bells = create_between(SPEC, "127.0.0.1"), [Bell(), Bell()]
    adopted = adopt(SPEC, *export(created))
    reader, writer = open_reader(created.spec, bells[0]), open_writer(adopted.spec, bells[1])
    reader.note(41)
    assert eventually(lambda: writer.noted == 41), "it comes with the first answer, before anything is released"
    for number in range(6):
        assert writer.send(arrays(number), Stamp(sequence=number), timeout=5.0)
        message = got(reader)
        assert message.stamp.sequence == number
        reader.note(100 + number)
        reader.release(message)
        assert eventually(lambda: writer.unreleased == 0)
        assert writer.noted == 100 + number, "a note is there before the slot is seen free"
    for end in (writer, reader):
        end.close()
    for held in (adopted, created):
        held.close()
    for bell in bells:
        bell.close()


def test_a_reader_that_comes_back_elsewhere_gets_what_it_had_not_released() -> None:
    created, bells = create_between(SPEC, "127.0.0.1"), [Bell(), Bell()]
    place, token, keys = export(created)
    adopted = adopt(SPEC, place, token, keys)
    writer = open_writer(adopted.spec, bells[1])
    assert isinstance(writer, TcpWriter)
    reader = open_reader(created.spec, bells[0])
    for number in range(3):
        assert writer.send(arrays(number), Stamp(sequence=number), timeout=5.0)
    reader.release(got(reader))
    assert eventually(lambda: writer.unreleased == 2)
    reader.close()
    created.close()
    moved = create_between(SPEC, "127.0.0.1", token, keys)
    elsewhere = export(moved)[0]
    assert elsewhere != place
    writer.repoint(elsewhere)
    adopted.move(elsewhere)
    assert adopted.spec.address.startswith(f"{elsewhere}/{token}/")
    again = open_reader(moved.spec, bells[0])
    for number in (1, 2):
        message = got(again)
        assert message.stamp.sequence == number
        again.release(message)
    for end in (writer, again):
        end.close()
    for held in (adopted, moved):
        held.close()
    for bell in bells:
        bell.close()
