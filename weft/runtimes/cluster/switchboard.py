"""The head's end of all lines to agents: one socket, and one thread that serves it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zmq

from weft.runtimes.cluster.line import LINE, MAX_FRAME, Invitation, packed, unpacked
from weft.runtimes.workers.control.link import LinkClosed, LinkMessage
from weft.streams.bell import Bell
from weft.streams.door import answer, answering
from weft.streams.endpoints import create_between, export, parse_address
from weft.streams.sockets import readable, receive, router

PING_SECONDS = 0.5
"""How often an agent hears from the head, at least."""


class Switchboard:
    """Listens on ``interface``. ``deliver`` gets each message of a host, in the thread; it must be quick."""

    def __init__(self, interface: str, deliver: Callable[[int, LinkMessage], None]) -> None:
        self._created, self._deliver = create_between(LINE, interface), deliver
        self._place, self._token, self._keys = export(self._created)
        self._peers: dict[int, bytes] = {}
        self._hosts: dict[bytes, int] = {}
        self._said: dict[int, int] = {}
        self._expected: dict[bytes, int] = {}
        self._out: deque[tuple[int, list[bytes]]] = deque()
        self._lock, self._bell, self._stopping = threading.Lock(), Bell(), False
        self.heard_at: dict[int, float] = {}  # by time.monotonic()
        self.broken: dict[int, str] = {}  # hosts whose line is of no more use, and why
        self._thread = threading.Thread(target=self._run, name="weft-hosts", daemon=True)
        self._thread.start()

    def invitation(self, host: int, interface: str) -> Invitation:
        """What the agent of a host is told."""
        return Invitation(self._place, self._token, self._keys.hex(), host, interface)

    def say(
        self, host: int, topic: str, body: dict[str, Any] | None = None, arrays: Sequence[np.ndarray[Any, Any]] = ()
    ) -> None:
        """Send; does not wait. Any thread may call it. To a host that is gone it does nothing."""
        with self._lock:
            number = self._said.get(host, 0)
            self._said[host] = number + 1
            self._out.append((host, packed(number, topic, body or {}, arrays)))
        self._bell.ring()

    def close(self) -> None:
        """Stop the thread; may be called twice."""
        if self._stopping:
            return
        self._stopping = True
        self._bell.ring()
        self._thread.join()
        self._bell.close()
        self._created.close()

    def _run(self) -> None:
        context = zmq.Context()
        asked = answering(context)
        address = parse_address(self._created.spec.address, LINE.name)
        socket, door = router(context, address, address.keys(LINE.name), MAX_FRAME)
        assert door is not None
        poller = zmq.Poller()
        for source in (self._bell.fileno(), asked, socket, door.monitor):
            poller.register(source, zmq.POLLIN)
        pinged = time.monotonic()
        while not self._stopping:
            ready = dict(poller.poll(int(PING_SECONDS * 1000)))
            if self._bell.fileno() in ready:
                self._bell.clear()
            if asked in ready:
                answer(asked)
            if door.monitor in ready:
                door.look()
            while readable(socket):
                frames = receive(socket)
                if door.undecided:
                    door.admit(frames[-1])
                self._take(frames[0].bytes, [frame.buffer for frame in frames[1:]])
            if time.monotonic() - pinged > PING_SECONDS:
                pinged = time.monotonic()
                for host in list(self._peers):
                    self.say(host, "ping")
            self._send_all(socket)
        self._send_all(socket)
        door.close()
        socket.close(linger=1000)
        asked.close()
        context.term()

    def _send_all(self, socket: zmq.Socket[bytes]) -> None:
        later: list[tuple[int, list[bytes]]] = []
        while self._out:
            host, frames = self._out.popleft()
            if host in self.broken:
                continue
            if host not in self._peers:
                later.append((host, frames))  # it has not reported yet
                continue
            try:
                socket.send_multipart([self._peers[host], *frames], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                    raise
                self.broken[host] = "its connection is gone"
        with self._lock:
            self._out.extendleft(reversed(later))

    def _take(self, peer: bytes, frames: list[Any]) -> None:
        if len(frames) == 1 and not len(frames[0]):
            return  # ZeroMQ's probe: a peer connected
        try:
            number, message = unpacked(frames)
        except LinkClosed as error:
            if peer in self._hosts:
                self.broken[self._hosts[peer]] = str(error)
            return
        if message.topic == "here" and number == 0:
            host = int(message.body.get("host", -1))
            if host in self._peers:  # there is one agent for each host, and it does not come back
                return
            self._peers[host], self._hosts[peer] = peer, host
        elif peer not in self._hosts:
            return
        host = self._hosts[peer]
        if host in self.broken:
            return
        if number != self._expected.get(peer, 0):
            self.broken[host] = f"message {number} came where {self._expected.get(peer, 0)} was expected"
            return
        self._expected[peer] = number + 1
        self.heard_at[host] = time.monotonic()
        try:
            self._deliver(host, message)
        except (ValueError, KeyError, TypeError, IndexError) as error:  # of one host: the others go on
            self.broken[host] = f"what it says makes no sense: {error!r}"
