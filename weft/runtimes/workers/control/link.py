"""The link between the launcher and a worker: small JSON messages with raw arrays, over an inherited socket pair.

For what is rare: the worker's task, readiness, reports, saved state, errors. Samples and params never pass here.
"""

from __future__ import annotations

import json
import math
import select
import socket
import struct
import threading
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

_HEAD = struct.Struct("<IQ")  # bytes of the JSON, bytes of the arrays
MAX_JSON = 1 << 28


class LinkClosed(Exception):
    """The other side is gone."""


class LinkMessage(NamedTuple):
    """One message: a word for what it is, its values, and arrays."""

    topic: str
    body: dict[str, Any]
    arrays: list[np.ndarray[Any, Any]]


class Link:
    """One end. ``say`` may be called by any thread; ``hear`` and ``take`` by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._closed = False
        self._reading = _parts()  # of the message under way
        self._view = memoryview(b"")  # what is still missing of its part

    @classmethod
    def pair(cls) -> tuple[Link, socket.socket]:
        """The launcher's end, and the socket that the worker inherits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def say(self, topic: str, body: dict[str, Any] | None = None, arrays: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        """Send; blocks while the other side's buffer is full. Raises LinkClosed."""
        contiguous = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]
        described = [[a.dtype.str, list(a.shape)] for a in contiguous]
        text = json.dumps({"topic": topic, "body": body or {}, "arrays": described}).encode()
        total = sum(a.nbytes for a in contiguous)
        try:
            with self._lock:
                self._socket.sendall(_HEAD.pack(len(text), total) + text)
                for array in contiguous:
                    if array.nbytes:
                        self._socket.sendall(array.reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise LinkClosed(str(error)) from None

    def hear(self, timeout: float | None = None) -> LinkMessage | None:
        """The next message; None where none comes within ``timeout`` seconds. Raises LinkClosed."""
        if timeout is not None:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(max(0, int(timeout * 1000))):
                return None
        return self._receive(0)

    def take(self) -> LinkMessage | None:
        """The next message if all of it has come; never blocks. Raises LinkClosed.

        A worker that is stopped amid a message has sent a part of it: whoever would wait for the rest is stopped too.
        """
        return self._receive(socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close; may be called twice."""
        if not self._closed:
            self._closed = True
            self._socket.close()

    def _receive(self, flags: int) -> LinkMessage | None:
        while True:
            while len(self._view):
                try:
                    got = self._socket.recv_into(self._view, 0, flags)
                except BlockingIOError:
                    return None
                except OSError as error:
                    raise LinkClosed(str(error)) from None
                if got == 0:
                    raise LinkClosed("the other side is gone")
                self._view = self._view[got:]
            try:
                self._view = next(self._reading)
            except StopIteration as whole:
                self._reading = _parts()
                message: LinkMessage = whole.value
                return message


def _parts() -> Generator[memoryview, None, LinkMessage]:
    """A message part by part: each is to be filled before the next is asked for. Raises LinkClosed."""
    head = bytearray(_HEAD.size)
    yield memoryview(head)
    length, total = _HEAD.unpack(head)
    if length > MAX_JSON:
        raise LinkClosed(f"a message of {length} bytes is not one of ours")
    text = bytearray(length)
    yield memoryview(text)
    try:
        fields = json.loads(bytes(text))
        topic, body = fields["topic"], fields["body"]
        layout = [(np.dtype(dtype), tuple(map(int, shape))) for dtype, shape in fields["arrays"]]
    except (ValueError, KeyError, TypeError) as error:
        raise LinkClosed(f"a message that is not one of ours: {error!r}") from None
    if sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout) != total:
        raise LinkClosed("a message whose arrays are not of the size it says is not one of ours")
    arrays = [np.empty(shape, dtype) for dtype, shape in layout]
    for array in arrays:
        if array.nbytes:
            yield array.reshape(-1).view(np.uint8).data
    return LinkMessage(topic, body, arrays)
