"""Images through LZ4: which arrays are tried, when it is left alone, and what is refused of what comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq
from channels import BLOCK, COMPRESSED, Channel, eventually, got, nothing_leaks
from insider import Insider

from benchmarks.fuzz_packed import fuzz_packed
from weft.streams import compression
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.compression import Packer, Unpacker, unpacks
from weft.streams.schema import array_specs, fingerprint
from weft.streams.wire import Data, Hello, Open, decode

IMAGES = {
    "flags": np.zeros(4096, np.bool_),
    "frames": np.zeros((3, 2, 84, 84), np.uint8),
    "icon": np.zeros((60, 60), np.uint8),
    "reward": np.zeros(4096, np.float32),
    "sky": np.zeros(4096, np.uint8),
}
SPEC = ChannelSpec("unroll", array_specs(IMAGES), 4, BLOCK, "tcp", compress=True)
STAMP = (0, 0, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_leaks():
        yield


def slot(fill: Any) -> np.ndarray[Any, Any]:
    return np.full(SPEC.message_bytes, fill, np.uint8)


def noise() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, SPEC.message_bytes, np.uint8)


def undone(packed: compression.Packed) -> np.ndarray[Any, Any] | None:
    parts = Unpacker(SPEC).unpack(packed.sizes, memoryview(packed.payload))
    if parts is None:
        return None
    whole = slot(9)
    for part, values in parts:
        whole[part] = values
    return whole


def test_large_arrays_of_bytes_are_tried_and_come_back_as_they_were() -> None:
    data = slot(7)
    data[100:400] = noise()[:300]
    packed = Packer(SPEC).pack(data)
    assert packed is not None
    assert len(packed.sizes) == 2, "frames and sky: the icon is small, and the others are no bytes"
    assert packed.payload.nbytes < 30_000
    found = undone(packed)
    assert found is not None
    np.testing.assert_array_equal(found, data)


def test_without_images_or_without_being_asked_nothing_is_compressed() -> None:
    plain = array_specs({"reward": np.zeros(9000, np.float32), "action": np.zeros(100, np.uint8)})
    assert not unpacks(ChannelSpec("unroll", plain, 4, BLOCK, "tcp", compress=True))
    assert not unpacks(ChannelSpec("unroll", SPEC.arrays, 4, BLOCK, "tcp"))
    assert unpacks(SPEC)
    assert ChannelSpec.from_json(SPEC.to_json()) == SPEC


def test_a_stream_that_does_not_shrink_is_left_alone_longer_and_longer() -> None:
    packer = Packer(SPEC)
    compress, tried, tries = packer._lz4.compress, [False], []

    class Counting:
        @staticmethod
        def compress(*given: Any, **named: Any) -> bytes:
            tried[0] = True
            return bytes(compress(*given, **named))

    packer._lz4 = Counting
    for number in range(200):
        tried[0] = False
        assert packer.pack(noise()) is None
        tries += [number] * tried[0]
    assert tries == [0, 2, 5, 10, 19, 36, 69, 134, 199]
    for _ in range(64):
        assert packer.pack(slot(1)) is None
    assert packer.pack(slot(1)) is not None, "what shrinks again is found out in time"
    assert packer.pack(slot(1)) is not None


def test_over_a_socket_it_arrives_as_it_was_sent_and_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    pack = Packer.pack

    def packing(self: Packer, data: np.ndarray[Any, Any]) -> Any:
        packed = pack(self, data)
        sizes.append(data.nbytes if packed is None else packed.payload.nbytes)
        return packed

    monkeypatch.setattr(Packer, "pack", packing)
    with Channel("tcp" + COMPRESSED, SPEC.arrays) as channel:
        writer, reader = channel.ends()
        for number in range(8):
            arrays = [np.full(s.shape, number, s.dtype) for s in SPEC.arrays]
            if number % 3 == 2:
                arrays[1] = noise()[: arrays[1].size].reshape(arrays[1].shape)
            assert writer.send(arrays, Stamp(sequence=number), 5)
            message = got(reader)
            assert message.stamp.sequence == number
            for sent, came in zip(arrays, message.arrays, strict=True):
                np.testing.assert_array_equal(sent, came)
            reader.release(message)
    assert min(sizes) < SPEC.message_bytes // 2 < max(sizes) == SPEC.message_bytes


@pytest.mark.parametrize("at", ["writer", "reader"])
def test_where_one_end_has_no_lz4_messages_come_as_they_are(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    with Channel("tcp" + COMPRESSED, SPEC.arrays) as channel:
        first, second = (channel.reader, channel.writer) if at == "writer" else (channel.writer, channel.reader)
        ends: list[Any] = [first()]
        monkeypatch.setattr(compression.util, "find_spec", lambda name: None)
        ends.append(second())
        reader, writer = ends if at == "writer" else reversed(ends)
        assert writer.send([np.full(s.shape, 3, s.dtype) for s in SPEC.arrays], Stamp(), 5)
        assert (got(reader).arrays[1] == 3).all()
        assert writer._attached.link._packer is None


def test_a_reader_that_was_not_asked_refuses_what_is_compressed() -> None:
    with Channel("tcp", SPEC.arrays) as channel:
        reader: Any = channel.reader()
        with Insider(zmq.DEALER, channel) as insider:
            insider.say(b"")
            hello = decode(insider.hear()[0])
            assert isinstance(hello, Hello)
            assert not hello.unpacks
            insider.say(Open(hello.token, fingerprint(SPEC.arrays), 1, 0))
            packed = Packer(SPEC).pack(slot(1))
            assert packed is not None
            insider.say(Data(0, STAMP, packed.sizes), packed.payload.tobytes())
            assert eventually(lambda: reader._attached.link.unexpected == 1)
            insider.say(Data(0, STAMP), bytes(SPEC.message_bytes))
            assert got(reader).place == 0


def test_what_is_too_much_is_refused_without_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """LZ4 is never asked for more than the schema's bytes, whatever a message says."""
    unpacker, asked = Unpacker(SPEC), []
    decompress = unpacker._lz4.decompress

    def asking(block: Any, uncompressed_size: int) -> bytes:
        asked.append(uncompressed_size)
        return bytes(decompress(block, uncompressed_size=uncompressed_size))

    monkeypatch.setattr(unpacker._lz4, "decompress", asking)
    bomb = unpacker._lz4.compress(bytes(1 << 25), store_size=False)
    good = Packer(SPEC).pack(slot(1))
    assert good is not None
    rest = good.payload[sum(good.sizes) :].tobytes()
    assert unpacker.unpack([len(bomb), 1], memoryview(bomb + b"\0" + rest)) is None
    assert unpacker.unpack([1 << 40, 1], memoryview(bomb)) is None
    assert unpacker.unpack([], memoryview(rest)) is None
    assert set(asked) <= {IMAGES["frames"].nbytes, IMAGES["sky"].nbytes}


def test_fuzzed_fields_are_refused_or_are_exactly_a_message() -> None:
    figures = fuzz_packed(3_000)
    assert figures["refused"] + figures["another picture"] == 3_000
    assert figures["refused"] > 2_000
    assert figures["another picture"] > 50
    assert figures["memory grew, MB"] < 64


def test_a_process_that_has_no_socket_loads_none_of_it() -> None:
    assert "lz4" not in _loaded("import weft.streams.registry, weft.streams.channel")


def _loaded(code: str) -> set[str]:
    import subprocess

    told = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(told.stdout.split())
