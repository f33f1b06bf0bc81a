"""Channels between two processes: Weft's against the least that could carry the same bytes.

The other process is ``streams_far.py``, one for each contender, kept alive between rounds. It writes; this one reads.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Case, Comparison
from benchmarks.options import Options
from benchmarks.serve import sized
from benchmarks.streams_far import ACTIONS, FRAMES, SLOTS, BareRing
from benchmarks.worker import ROOT
from weft.core.delivery import Delivery
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Created, Stamp
from weft.streams.registry import SOCKET_SCHEMES, create, open_reader, open_writer
from weft.streams.schema import array_specs

MEBIBYTE = 1 << 20
SIZES = (MEBIBYTE, 16 * MEBIBYTE)


def cases(options: Options, stack: ExitStack) -> list[Case]:
    """Both processes of every contender are ready; ``stack`` ends the others."""
    made = []
    for size in SIZES:
        title = f"streams: unrolls of {size // MEBIBYTE} MiB through shared memory, one copy in and one out"
        case = Case(title, "MiB/s", {}, [Comparison("Weft shm", ("bare",), 0.70)])
        _add(case, options, stack, size, {"bare": _bare_shm, "Weft shm": _weft_shm})
        made.append(case)
    made.append(_round_trips(options, stack))
    for size in SIZES:
        title = f"streams: messages of {size // MEBIBYTE} MiB over sockets, from memory to memory"
        aims = [Comparison("Weft ipc", ("bare socket",), 0.60), Comparison("Weft tcp", ("bare socket",))]
        case = Case(title, "MiB/s", {}, aims)
        ours = {f"Weft {scheme}": partial(_weft_socket, scheme=scheme) for scheme in SOCKET_SCHEMES}
        _add(case, options, stack, size, {"bare socket": _bare_socket, **ours})
        made.append(case)
    made[0].notes.append(
        f"Bare: the same copies over a mapping of {SLOTS} slots, with a counting eventfd for each direction."
    )
    made[-1].notes.append("Bare: sendall from one buffer, recv_into another, over loopback TCP. Weft's tcp encrypts.")
    return made


class Far:
    """The other process; told how many messages to send, it does, and then says how it went."""

    def __init__(
        self, stack: ExitStack, kind: str, fds: tuple[int, ...], module: str = "benchmarks.streams_far", **told: Any
    ) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, kind, json.dumps(told)],
            cwd=ROOT,
            pass_fds=fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._end)

    def go(self, count: int) -> None:
        """Begin; does not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def ended(self) -> float:
        """Wait for the end of what it was told; what it measured."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the other process of {self.kind} ended; its own words are above")
        return float(line)

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


Make = Callable[[ExitStack, int], tuple[Far, Callable[[int], None]]]
"""The other process, and what takes so many messages from it."""


def _add(case: Case, options: Options, stack: ExitStack, size: int, makes: dict[str, Make]) -> None:
    for name, make in makes.items():
        options.tell(f"preparing  {case.title}  {name}")
        far, take = make(stack, size)

        def run(count: int, far: Far = far, take: Callable[[int], None] = take) -> None:
            far.go(count)
            take(count)
            far.ended()

        count = sized(run, options.seconds)

        def measure(run: Callable[[int], None] = run, count: int = count) -> float:
            began = time.perf_counter()
            run(count)
            return count * size / MEBIBYTE / (time.perf_counter() - began)

        case.contenders[name] = measure


def _bells(stack: ExitStack) -> tuple[Bell, Bell]:
    mine, theirs = Bell(), Bell()
    stack.callback(mine.close)
    stack.callback(theirs.close)
    return mine, theirs


def _channel(stack: ExitStack, scheme: str, message: np.ndarray[Any, Any]) -> Created:
    created = create(ChannelSpec("bench", array_specs(message), SLOTS, Delivery.BLOCK, scheme))
    stack.callback(created.close)
    return created


def _weft_shm(stack: ExitStack, size: int) -> tuple[Far, Callable[[int], None]]:
    target = np.ones(size, np.uint8)
    created, (mine, theirs) = _channel(stack, "shm", target), _bells(stack)
    reader = open_reader(created.spec, mine, theirs)
    stack.callback(reader.close)
    far = Far(
        stack,
        "weft",
        (*created.fds, *mine.fds, *theirs.fds),
        spec=created.spec.to_json(),
        bells=[theirs.fds, mine.fds],
        fill=True,
    )

    def take(count: int) -> None:
        for _ in range(count):
            message = reader.receive()
            assert message is not None
            np.copyto(target, message.arrays[0])
            reader.release(message)

    return far, take


def _bare_shm(stack: ExitStack, size: int) -> tuple[Far, Callable[[int], None]]:
    target = np.ones(size, np.uint8)
    ring, far = _bare_ring(stack, "bare", size, SLOTS)

    def take(count: int) -> None:
        for number in range(count):
            os.eventfd_read(ring.full)
            np.copyto(target, ring.slots[number % SLOTS])
            os.eventfd_write(ring.free, 1)

    return far, take


def _bare_ring(stack: ExitStack, kind: str, size: int, slots: int) -> tuple[BareRing, Far]:
    memory = os.memfd_create("bare")
    os.ftruncate(memory, size * slots)
    full, free = os.eventfd(0, os.EFD_SEMAPHORE), os.eventfd(slots, os.EFD_SEMAPHORE)
    for fd in (memory, full, free):
        stack.callback(os.close, fd)
    ring = BareRing.over(mmap.mmap(memory, size * slots), slots, full, free)
    return ring, Far(stack, kind, (memory, full, free), memory=memory, size=size, slots=slots, full=full, free=free)


def _weft_socket(stack: ExitStack, size: int, scheme: str) -> tuple[Far, Callable[[int], None]]:
    created, (mine, theirs) = _channel(stack, scheme, np.ones(size, np.uint8)), _bells(stack)
    reader = open_reader(created.spec, mine, theirs)
    stack.callback(reader.close)
    far = Far(
        stack,
        "weft",
        (*created.fds, *mine.fds, *theirs.fds),
        spec=created.spec.to_json(),
        bells=[theirs.fds, mine.fds],
        fill=False,
    )

    def take(count: int) -> None:
        for _ in range(count):
            message = reader.receive()
            assert message is not None
            reader.release(message)

    return far, take


def _bare_socket(stack: ExitStack, size: int) -> tuple[Far, Callable[[int], None]]:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    far = Far(stack, "socket", (), port=listener.getsockname()[1], size=size)
    connection = stack.enter_context(listener.accept()[0])
    target = memoryview(bytearray(size))

    def take(count: int) -> None:
        for _ in range(count):
            got = 0
            while got < size:
                got += connection.recv_into(target[got:])

    return far, take


def _round_trips(options: Options, stack: ExitStack) -> Case:
    """An environment's worker asks for 64 actions: medians of single round trips, as the worker sees them."""
    title = "streams: round trip of 64 × 84×84×4 uint8, copied in and out, answered by 64 actions"
    case = Case(title, "µs", {})
    counts: dict[str, int] = {}
    runs: dict[str, Callable[[int], float]] = {}
    for name, make in {"bare eventfds": _bare_trip, "Weft shm": _weft_trip}.items():
        options.tell(f"preparing  {title}  {name}")
        far, answer = make(stack)

        def run(count: int, far: Far = far, answer: Callable[[int], None] = answer) -> float:
            far.go(count)
            answer(count)
            return far.ended()

        runs[name], counts[name] = run, sized(lambda count, run=run: (run(count), None)[1], options.seconds)
        case.contenders[name] = lambda name=name: runs[name](counts[name])

    def added() -> float:
        """In blocks that take turns, so that both see the same machine."""
        blocks = [[run(max(1, counts[name] // 10)) for name, run in runs.items()] for _ in range(10)]
        bare, weft = np.median(np.array(blocks), axis=0)
        return float(weft - bare)

    case.contenders["Weft shm, less bare"] = added
    case.notes.append("Aim: Weft adds no more than 200 µs. Bare: one slot each way, and an eventfd for each.")
    return case


def _weft_trip(stack: ExitStack) -> tuple[Far, Callable[[int], None]]:
    target, actions = np.ones(FRAMES, np.uint8), np.ones(ACTIONS, np.int32)
    mine, theirs = _bells(stack)
    asking, answering = _channel(stack, "shm", target), _channel(stack, "shm", actions)
    reader, writer = open_reader(asking.spec, mine, theirs), open_writer(answering.spec, mine, [theirs])
    stack.callback(reader.close)
    stack.callback(writer.close)
    far = Far(
        stack,
        "weft-trip",
        (*asking.fds, *answering.fds, *mine.fds, *theirs.fds),
        asking=asking.spec.to_json(),
        answering=answering.spec.to_json(),
        bells=[theirs.fds, mine.fds],
    )

    def answer(count: int) -> None:
        for number in range(count):
            message = reader.receive()
            assert message is not None
            np.copyto(target, message.arrays[0])
            reader.release(message)
            slot = writer.reserve()
            assert slot is not None
            np.copyto(slot[0], actions)
            writer.commit(Stamp(sequence=number))

    return far, answer


def _bare_trip(stack: ExitStack) -> tuple[Far, Callable[[int], None]]:
    frames, actions = np.ones(FRAMES, np.uint8), np.ones(ACTIONS, np.int32)
    target, answers = frames.reshape(-1), actions.view(np.uint8)
    ring, far = _bare_ring(stack, "bare-trip", frames.nbytes + actions.nbytes, 1)
    slot = ring.slots[0]
    os.eventfd_read(ring.free)  # here it says that the actions are there

    def answer(count: int) -> None:
        for _ in range(count):
            os.eventfd_read(ring.full)
            np.copyto(target, slot[: target.size])
            np.copyto(slot[target.size :], answers)
            os.eventfd_write(ring.free, 1)

    return far, answer
