"""The hostile process of ``fuzz.py``: ``python -m benchmarks.fuzz_far KIND JSON``; a line on stdin is a count.

``stranger``: another user, where it may become one, without the channel's keys; it sends bytes that are nearly
ZeroMQ's protocol. ``insider``: it has the keys, and sends headers that are nearly ours.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import zmq

from weft.streams.endpoints import parse_address
from weft.streams.wire import Ack, Ask, Bye, Data, Hello, Open, Refused, encode

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)
A_TIME = 8  # frames of a stranger's connection; the first that makes no sense ends it


def headers(rng: random.Random) -> Iterator[list[bytes]]:
    """Messages that are nearly right, without end: no token of theirs is the channel's."""
    number, stamp = 1 << 40, (0, 0, 0, 0, 0, 0)
    sound = [
        encode(header)
        for header in (
            Hello("fuzz", "fuzz", 1, 0),
            Open("fuzz", "fuzz", 1, 0),
            Ask("fuzz", "fuzz", 1, 0),
            Data(number, stamp),
            Ack(number),
            Refused("[]"),
        )
    ]
    sound += [pickle.dumps({"fuzz": print}), json.dumps(["data", 0]).encode(), encode(["open", None, {}, -1])]
    while True:
        frame = bytearray(rng.choice(sound))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        match rng.randrange(6):
            case 0:
                frame = frame[: rng.randrange(1, len(frame) + 1)]
            case 1:
                frame += rng.randbytes(rng.randrange(200))
            case 2:
                frame = bytearray(rng.randbytes(rng.randrange(1, 2000)))
            case _:
                pass
        yield [bytes(frame), *(rng.randbytes(rng.randrange(1, 300)) for _ in range(rng.choice((0, 0, 1, 1, 2, 5))))]


def stranger_bytes(rng: random.Random) -> bytes:
    """One frame of ZeroMQ's protocol, nearly: a command or a message, whose length may be a lie."""
    body = rng.choice((b"\x05HELLO\x01\x00", b"\x05READY", b"\x08INITIATE", b"\x07MESSAGE", b"")) + rng.randbytes(
        rng.randrange(300)
    )
    length = len(body) if rng.random() < 0.7 else rng.randrange(1 << 63)
    flags = rng.choice((0x04, 0x06, 0x00, 0x02, 0x01, rng.randrange(256)))
    return bytes([flags]) + (struct.pack(">Q", length) if flags & 2 else bytes([length & 255])) + body


def stranger(address: str, seed: int, rate: float) -> Callable[[int], int]:
    """Says frames at a port, ``rate`` a second, in many short connections; gives how many bytes it was told."""
    place, rng = parse_address(address, "fuzz"), random.Random(seed)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    def run(count: int) -> int:
        heard, began = 0, time.monotonic()
        for done in range(0, count, A_TIME):
            frames = b"".join(stranger_bytes(rng) for _ in range(min(A_TIME, count - done)))
            greeting = GREETING if rng.random() < 0.8 else rng.randbytes(64)
            with suppress(OSError), socket.socket() as raw:
                raw.settimeout(2.0)
                raw.connect((place.host, place.port))
                raw.sendall(greeting + frames)
                raw.shutdown(socket.SHUT_WR)
                while data := raw.recv(4096):
                    heard += max(0, len(data) - len(GREETING))  # ZeroMQ greets whoever comes
            time.sleep(max(0.0, began + done / rate - time.monotonic()))
        return heard

    return run


def insider(address: str, seed: int, rate: float) -> Callable[[int], int]:
    """Says messages as a peer of the channel, ``rate`` a second; gives how many bytes it was told in answer."""
    place, rng = parse_address(address, "fuzz"), random.Random(seed)
    keys = place.keys("fuzz")
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    if keys is not None:
        dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public)
        dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret)
    dealer.connect(place.endpoint)
    dealer.send(encode(Bye()))  # waits until it is let in
    messages = headers(rng)

    def run(count: int) -> int:
        heard, began = 0, time.monotonic()
        for done in range(count):
            dealer.send_multipart(next(messages))
            if done % 100 == 0:
                while dealer.poll(0):
                    heard += sum(map(len, dealer.recv_multipart()))
                time.sleep(max(0.0, began + done / rate - time.monotonic()))
        return heard

    return run


KINDS: dict[str, Callable[..., Callable[[int], int]]] = {"stranger": stranger, "insider": insider}

if __name__ == "__main__":
    told: dict[str, Any] = json.loads(sys.argv[2])
    run = KINDS[sys.argv[1]](**told)
    for line in sys.stdin:
        print(run(int(line)), flush=True)
