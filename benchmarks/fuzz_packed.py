"""Hostile bytes where a channel takes compressed fields: a peer that has the keys, has opened, and is believed.

``python -m benchmarks.fuzz_packed [--messages N]`` sends messages that are nearly right, all of them at the place that
is next. Each must be refused and counted, or come as exactly the schema's bytes: noise within a field may be another
picture. ``fuzz.py`` has the peers that are not believed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import ExitStack

import lz4.block
import numpy as np
import zmq

from benchmarks.fuzz import resident
from weft.core.delivery import Delivery
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec
from weft.streams.compression import Packer
from weft.streams.endpoints import parse_address
from weft.streams.registry import create, open_reader
from weft.streams.schema import array_specs, fingerprint
from weft.streams.tally import TALLY
from weft.streams.wire import Data, Open, encode

TREE = {"near": np.zeros((8, 32, 32), np.uint8), "far": np.zeros(4096, np.uint8), "reward": np.zeros(16, np.float32)}
BOMB = bytes(lz4.block.compress(bytes(1 << 21), store_size=False))  # 2 MiB of nothing, in less than a message's bytes
STAMP = (0, 0, 0, 0, 0, 0)
TIMEOUT = 30.0


def nearly(rng: random.Random, spec: ChannelSpec) -> tuple[list[int], bytes]:
    """Sizes and payload of a message, with something wrong, or other pictures in it."""
    slot = np.frombuffer(bytes(rng.choices(range(4), k=64)) * (spec.message_bytes // 64), np.uint8)
    packed = Packer(spec).pack(slot)
    assert packed is not None
    sizes, payload = list(packed.sizes), bytearray(packed.payload.tobytes())
    which = rng.randrange(len(sizes))
    start, end = sum(sizes[:which]), sum(sizes[: which + 1])
    match rng.randrange(10):
        case 0:  # noise in a field
            for _ in range(rng.randrange(1, 5)):
                payload[rng.randrange(sum(sizes))] = rng.randrange(256)
        case 1:  # of another length
            payload = payload[: rng.randrange(len(payload))]
        case 2:
            payload += rng.randbytes(rng.randrange(1, 3000))
        case 3:  # sizes that lie
            sizes[which] = rng.choice([0, -1, 1, sizes[which] + 1, 1 << 40, 1 << 63])
        case 4:  # and those whose sum is right
            sizes = [sizes[0] + 1, sizes[1] - 1]
        case 5:  # more fields, or fewer
            sizes = rng.choice([sizes[:1], [*sizes, 1], [1] * 200])
        case 6:  # a field that is too long, or too short, when it is undone
            wanted = spec.layout.extents[which][1]
            other = lz4.block.compress(bytes(max(1, wanted + rng.choice([-4000, -1, 1, 100_000]))), store_size=False)
            payload[start:end], sizes[which] = other, len(other)
        case 7:  # a bomb
            payload[start:end], sizes[which] = BOMB, len(BOMB)
        case 8:  # no LZ4 at all
            payload[start:end] = rng.randbytes(end - start)
        case _:  # a plain message of another length
            sizes = []
    return sizes, bytes(payload)


def fuzz_packed(messages: int, seed: int = 0) -> dict[str, float]:
    """What became of them; raises RuntimeError where one is neither refused nor a message of the schema."""
    with ExitStack() as stack:
        asked = ChannelSpec("fuzzed", array_specs(TREE), 4, Delivery.BLOCK, "tcp", compress=True)
        created = create(asked)
        stack.callback(created.close)
        bell = Bell()
        stack.callback(bell.close)
        spec, rng = created.spec, random.Random(seed)
        reader = open_reader(spec, bell)
        stack.callback(reader.close)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        stack.callback(context.term)
        peer = _peer(context, spec)
        stack.callback(peer.close, 0)
        peer.recv_multipart()  # its Hello
        peer.send(encode(Open(parse_address(spec.address, "").token, fingerprint(spec.arrays), 1, 0)))
        memory, refused, taken = resident(), TALLY.frames, 0
        for number in range(messages):
            sizes, payload = nearly(rng, spec)
            peer.send_multipart([encode(["data", taken, STAMP, sizes]), payload])
            until = time.monotonic() + TIMEOUT
            while TALLY.frames - refused + taken <= number:
                message = reader.receive(0.0005)
                if message is not None:
                    if [(a.shape, a.dtype.name) for a in message.arrays] != [(s.shape, s.dtype) for s in spec.arrays]:
                        raise RuntimeError(f"message {number} is not as the schema says")
                    reader.release(message)
                    taken += 1
                elif time.monotonic() > until:
                    raise RuntimeError(f"message {number} was neither refused nor taken")
        whole = Packer(spec).pack(np.zeros(spec.message_bytes, np.uint8))
        assert whole is not None
        peer.send_multipart([encode(Data(taken, STAMP, whole.sizes)), whole.payload.tobytes()])
        if reader.receive(TIMEOUT) is None:
            raise RuntimeError("a message that is right was not taken after that")
        return {
            "messages sent": messages,
            "refused": TALLY.frames - refused,
            "another picture": taken,
            "memory grew, MB": (resident() - memory) / 1e6,
        }


def _peer(context: zmq.Context[zmq.Socket[bytes]], spec: ChannelSpec) -> zmq.Socket[bytes]:
    address = parse_address(spec.address, spec.name)
    keys = address.keys(spec.name)
    assert keys is not None
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.PROBE_ROUTER, 1)
    peer.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
    peer.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public)
    peer.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret)
    peer.connect(address.endpoint)
    return peer


def main(arguments: list[str]) -> int:
    """Fuzz, print what became of it; 1 where memory grew by 64 MB or more."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_packed", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    figures = fuzz_packed(parser.parse_args(arguments).messages)
    for name, value in figures.items():
        print(f"{name}: {value:,.1f}" if isinstance(value, float) else f"{name}: {value:,}")
    return int(figures["memory grew, MB"] >= 64)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
