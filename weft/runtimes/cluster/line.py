"""The line between the head and the agents of its hosts: JSON and raw arrays over encrypted sockets.

Every frame is at most ``MAX_FRAME`` bytes; larger arrays are cut. Messages are numbered at each end: a connection that
has lost one is of no more use, and the host with it. Only who has the run's keys can connect, and only to this address.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import zmq

from weft.core.delivery import Delivery
from weft.runtimes.workers.control.link import MAX_JSON, LinkClosed, LinkMessage
from weft.streams.channel import ChannelSpec
from weft.streams.endpoints import adopt, parse_address
from weft.streams.sockets import dealer, readable, receive

MAX_FRAME = 1 << 25
"""Bytes of a frame. A stranger's frames are dropped above it, and so is what is not of the run."""

MAX_ARRAYS = 1 << 36
"""Bytes of the arrays of one message: a state that is saved."""

LEASE_SECONDS = 30.0
"""An agent that has not heard the head for so long ends its workers: the head may have given them up."""

LINE = ChannelSpec("hosts", (), 1, Delivery.LATEST, "tcp")


class Invitation(NamedTuple):
    """What an agent needs to reach the head. The keys are secret: it goes only where the run's code goes."""

    place: str
    token: str
    keys: str  # hexadecimal
    host: int  # the agent's, by its index
    interface: str  # the address of its machine by which other hosts reach it

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


def packed(number: int, topic: str, body: dict[str, Any], arrays: Sequence[np.ndarray[Any, Any]] = ()) -> list[bytes]:
    """A message's frames."""
    contiguous = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]
    described = [[a.dtype.str, list(a.shape)] for a in contiguous]
    text = json.dumps({"number": number, "topic": topic, "body": body, "arrays": described}).encode()
    frames = [text[at : at + MAX_FRAME] for at in range(0, len(text), MAX_FRAME)]
    frames.insert(0, len(frames).to_bytes(4, "little"))
    for array in contiguous:
        data = array.reshape(-1).view(np.uint8).data if array.nbytes else b""
        frames += [bytes(data[at : at + MAX_FRAME]) for at in range(0, array.nbytes, MAX_FRAME)]
    return frames


def unpacked(frames: Sequence[Any]) -> tuple[int, LinkMessage]:
    """A message's number, and what it says. Raises LinkClosed for what is no message."""
    try:
        count = int.from_bytes(bytes(frames[0]), "little")
        if len(frames[0]) != 4 or not 0 < count < len(frames) or sum(map(len, frames[1 : 1 + count])) > MAX_JSON:
            raise ValueError("its frames do not fit")
        fields = json.loads(b"".join(bytes(frame) for frame in frames[1 : 1 + count]))
        layout = [(np.dtype(dtype), tuple(map(int, shape))) for dtype, shape in fields["arrays"]]
        number, topic, body = int(fields["number"]), str(fields["topic"]), dict(fields["body"])
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in layout]
        data = list(frames[1 + count :])
        if any(dtype.hasobject for dtype, _ in layout) or sum(sizes) > MAX_ARRAYS or sum(map(len, data)) != sum(sizes):
            raise ValueError("its arrays are not of the size that it says")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LinkClosed(f"a message that is not one of ours: {error!r}") from None
    arrays = []
    for (dtype, shape), size in zip(layout, sizes, strict=True):
        array, filled = np.empty(shape, dtype), 0
        view = array.reshape(-1).view(np.uint8) if size else array
        while filled < size:
            part = np.frombuffer(data.pop(0), np.uint8)
            view[filled : filled + len(part)] = part
            filled += len(part)
        arrays.append(array)
    return number, LinkMessage(topic, body, arrays)


class AgentLine:
    """An agent's end. One thread uses it."""

    def __init__(self, invitation: Invitation) -> None:
        self._adopted = adopt(LINE, invitation.place, invitation.token, bytes.fromhex(invitation.keys))
        address = parse_address(self._adopted.spec.address, LINE.name)
        self._context = zmq.Context()
        self.socket = dealer(self._context, address, address.keys(LINE.name), MAX_FRAME)
        self._out: deque[list[bytes]] = deque()  # what waits for a connection
        self._said = self._heard = 0

    def say(self, topic: str, body: dict[str, Any] | None = None, arrays: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        """Send, now or with a later ``flush``; does not wait."""
        self._out.append(packed(self._said, topic, body or {}, arrays))
        self._said += 1
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before there was a connection; does not wait."""
        with suppress(zmq.Again):
            while self._out:
                self.socket.send_multipart(self._out[0], zmq.NOBLOCK)
                self._out.popleft()

    def hear(self) -> LinkMessage | None:
        """The next message, if there is one. Raises LinkClosed where one was lost on the way."""
        if not readable(self.socket):
            return None
        number, message = unpacked([frame.buffer for frame in receive(self.socket)])
        if number != self._heard:
            raise LinkClosed(f"message {number} came where {self._heard} was expected")
        self._heard += 1
        return message

    def close(self) -> None:
        """Send what is left, for a moment, and close."""
        self.socket.close(linger=1000)
        self._context.term()
        self._adopted.close()
