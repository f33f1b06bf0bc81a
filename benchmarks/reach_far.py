"""The far side of ``reach.py``: many producers, or a relay with many readers, in a process. JSON comes first on stdin.

It imports nothing of ``benchmarks``, so that ``reach.py`` measures other checkouts too.
"""

from __future__ import annotations

import heapq
import json
import os
import sys
import threading
import time
from typing import Any

from weft.core.delivery import Delivery
from weft.runtimes.workers.counting.account import Account, OfWire
from weft.runtimes.workers.layout.blueprint import Wire
from weft.runtimes.workers.wires import WireWriter
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.registry import create, open_reader, open_writer

TICK, LOOK = 0.05, 0.1  # seconds from one look at what is due to the next, and at producers that had no room


def produce(told: dict[str, Any]) -> None:
    """Send one unroll on each wire; from "go" on, one every period, spread over it; after "stop" no more.

    A wire whose reader holds all its slots sends as soon as it has one again, as an actor does.
    """
    fd, sides, wires = told["account"]
    account, bell = Account(sides, wires, fd=fd), Bell()
    writers = []
    for (index, samples), saved in zip(told["wires"], told["channels"], strict=True):
        spec = ChannelSpec.from_json(saved)
        name, leg = spec.name, ("unroll", "act", index, (sides - 1,), index)
        wire = Wire(index, name, *leg, "tcp", spec.capacity, Delivery.BLOCK, samples=samples)
        writers.append(WireWriter(wire, open_writer(spec, bell), account, 0))
    period, words = told["period"], [account.wires[writer.wire.index] for writer in writers]
    for i, writer in enumerate(writers):
        assert send(writer, words[i])
    orders: list[str] = []
    heard = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            orders.append(line.strip())
            heard.set()
        if "stop" not in orders:  # the other side is gone
            os._exit(1)

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    heard.wait()
    print("going", flush=True)
    start = time.monotonic()
    due = [(start + period * i / len(writers), i) for i in range(len(writers))]
    heapq.heapify(due)
    full, look = list[int](), 0.0  # those that would send, and have no room
    while "stop" not in orders:
        now = time.monotonic()
        if full and now >= look:  # not at each ring: here hundreds of producers share a process and its bell
            full = [i for i in full if not resumed(writers[i], words[i], due, i, now + period)]
            look = now + LOOK
        while due and due[0][0] <= now:
            at, i = heapq.heappop(due)
            if send(writers[i], words[i]):
                heapq.heappush(due, (max(at + period, now), i))
            else:
                full.append(i)
        time.sleep(TICK)
    while any(writer.writer.unreleased for writer in writers):
        bell.wait(0.05)
    print("stopped", flush=True)
    listening.join()  # until the other side has closed its ends


def resumed(writer: WireWriter, words: Any, due: list[tuple[float, int]], i: int, then: float) -> bool:
    """Whether a wire that had no room could send; its next unroll is due a period later."""
    if not send(writer, words):
        return False
    heapq.heappush(due, (then, i))
    return True


def send(writer: WireWriter, words: Any) -> bool:
    """Number and send one unroll, whatever lies in the slot; False where there is no room."""
    if writer.reserve() is None:
        return False
    words[OfWire.PRODUCED] += writer.wire.samples
    writer.commit(0)
    return True


def relay(told: dict[str, Any]) -> None:
    """Follow the params over tcp, put them into shared memory, and read them there, ``readers`` times.

    Answers the number of a version with the times at which it had come, and at which the last reader had it.
    """
    spec = ChannelSpec.from_json(told["params"])
    bell = Bell()
    follow = open_reader(spec, bell)
    bells = [Bell() for _ in range(told["readers"])]  # of workers, each has its own
    memory = create(ChannelSpec("params", spec.arrays, 1, Delivery.LATEST, "shm"))
    writer = open_writer(memory.spec, bell, bells)
    readers = [open_reader(memory.spec, one) for one in bells]
    print("ready", flush=True)
    times: dict[int, dict[str, float]] = {}
    here = threading.Condition()

    def carry() -> None:
        while True:
            message = follow.receive()
            assert message is not None
            writer.send(message.arrays, Stamp(version=message.stamp.version))
            relayed = time.monotonic()
            for one, reader in zip(bells, readers, strict=True):
                one.wait(0)
                while reader.receive(0) is None:
                    pass
            with here:
                times[message.stamp.version] = {"relayed": relayed, "read": time.monotonic()}
                here.notify()

    threading.Thread(target=carry, daemon=True).start()
    for line in sys.stdin:
        with here:
            here.wait_for(lambda line=line: int(line) in times)
        print(json.dumps(times[int(line)]), flush=True)


if __name__ == "__main__":
    {"produce": produce, "relay": relay}[sys.argv[1]](json.loads(sys.stdin.readline()))
    sys.stdout.flush()
    os._exit(0)  # the ends are closed by the other side
