"""An end of a channel in a process of its own, to be killed: ``python far_end.py '{"role": …, "spec": …}'``.

What it did is said on stdout, a line each, so that whoever started it knows when to kill it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import IO, Any

import numpy as np

from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Stamp
from weft.streams.registry import open_reader, open_writer

SIZE = 1 << 14


def value(place: int) -> np.ndarray[Any, Any]:
    """What message ``place`` holds: a number, everywhere."""
    return np.full(SIZE, place, np.int64)


def tell(*words: object) -> None:
    print(*words, flush=True)


def write(spec: ChannelSpec, mine: Bell, other: Bell, first: int, count: int, then: str) -> None:
    """Send ``count`` messages numbered from ``first``; then wait in the midst of the next, or close."""
    writer = open_writer(spec, mine, [other])
    for number in range(first, first + count):
        assert writer.send([value(number)], Stamp(producer=7, sequence=number), timeout=20)
        tell("sent", number)
    if then == "half":
        slot = writer.reserve(20)
        assert slot is not None
        slot[0][: SIZE // 2] = -1
        tell("half")
        time.sleep(60)
    elif then == "wait":
        time.sleep(60)
    writer.close()


def read(spec: ChannelSpec, mine: Bell, other: Bell, first: int, count: int, then: str) -> None:
    """Receive and release ``count``; then receive two more without releasing them and wait, or close."""
    reader = open_reader(spec, mine, other)
    for _ in range(count):
        message = reader.receive(20)
        assert message is not None
        assert (message.arrays[0] == message.stamp.sequence).all()
        tell("got", message.place, message.stamp.sequence)
        reader.release(message)
    if then == "hold":
        held = [reader.receive(20) for _ in range(2)]
        tell("held", *(m.place for m in held if m is not None))
        time.sleep(60)
    elif then == "wait":
        time.sleep(60)
    reader.close()


def hammer(spec: ChannelSpec, mine: Bell, other: Bell, first: int, count: int, then: str) -> None:
    """Write as fast as one can, for a while: each message is one number, everywhere."""
    writer = open_writer(spec, mine, [other])
    number, until = first, time.monotonic() + 1.0
    while time.monotonic() < until:
        slot = writer.reserve(0)
        assert slot is not None
        slot[0][:] = number
        writer.commit(Stamp(sequence=number))
        number += 1
    tell("sent", number)
    writer.close()


ROLES = {"write": write, "read": read, "hammer": hammer}


class FarEnd:
    """The process, as seen by a test; a context manager that kills it."""

    def __init__(
        self,
        role: str,
        spec: ChannelSpec,
        mine: Bell,
        other: Bell,
        fds: tuple[int, ...],
        first: int,
        count: int,
        then: str,
    ) -> None:
        told = {"role": role, "spec": spec.to_json(), "mine": mine.fds, "other": other.fds}
        told |= {"first": first, "count": count, "then": then}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(told)],
            pass_fds=(*fds, *mine.fds, *other.fds),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines: IO[str] = self._process.stdout
        self.said: list[list[str]] = []

    def until(self, word: str) -> list[list[str]]:
        """Its lines up to and with the one that begins with ``word``."""
        lines: list[list[str]] = []
        for line in self._lines:
            lines.append(line.split())
            if lines[-1][0] == word:
                return lines
        raise AssertionError(f"it ended without saying {word!r}: {lines}")

    def lines(self) -> list[list[str]]:
        """All that it has left to say; waits for its end."""
        said = [line.split() for line in self._lines]
        assert self._process.wait(timeout=30) == 0
        return said

    def kill(self) -> None:
        """SIGKILL, and wait for it; what it had still said is in ``said``."""
        if self._lines.closed:
            return
        self._process.kill()
        self._process.wait()
        self.said = [line.split() for line in self._lines]
        self._lines.close()

    def __enter__(self) -> FarEnd:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    ROLES[asked["role"]](
        ChannelSpec.from_json(asked["spec"]),
        Bell.from_fd(*asked["mine"]),
        Bell.from_fd(*asked["other"]),
        asked["first"],
        asked["count"],
        asked["then"],
    )
    assert not {"jax", "jaxlib"} & set(sys.modules)
