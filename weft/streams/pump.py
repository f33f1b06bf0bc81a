"""One thread for all the sockets of a process: it moves frames between them and local slots, and rings local bells.

A ZeroMQ socket belongs to one thread, so the ends of tcp channels never touch it. An end works on a ring in this
process's memory, and a ``Link``, which lives in the pump's thread, carries the ring's contents to the other process.
The thread starts with the first link and ends with the last.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import zmq
from zmq.utils import garbage

from weft.core.errors import ChannelError, SchemaMismatch
from weft.streams.bell import Bell
from weft.streams.door import Door, answer, answering
from weft.streams.sockets import POLLIN, readable, receive
from weft.streams.tally import TALLY

T = TypeVar("T")
Frames = list[zmq.Frame]

_TURN = 32  # messages taken from one socket before the next socket's turn


class Link(Protocol):
    """One end's side of a socket. Only the pump's thread calls it."""

    socket: zmq.Socket[bytes]
    door: Door | None  # where the socket is bound and has keys
    unexpected: int  # malformed or out-of-turn frames, which were dropped
    refused: SchemaMismatch | None  # why the other side refused this one

    def take(self, frames: Frames) -> None:
        """Handle one message from the socket."""
        ...

    def turn(self) -> None:
        """Something may have moved: send what can be sent."""
        ...

    def finish(self, late: bool) -> bool:
        """The end was closed. Returns True once everything, with the Bye, is sent; ``late``: the time is up."""
        ...


class Attached:
    """A link that the pump serves, as its end sees it; ``bell`` is the end's. ``owns``: the place where it is bound."""

    def __init__(self, pump: _Pump, link: Link, bell: Bell, owns: str | None) -> None:
        self._pump, self.link, self.bell, self.owns = pump, link, bell, owns
        self.counted = 0  # of the link's unexpected frames, those in the tally
        self.error: Exception | None = None  # an error on this side: in a socket, or in Weft
        self.deadline: float | None = None  # set by close: the time at which the link gives up
        self.finished = threading.Event()

    def wake(self) -> Bell:
        """The bell to ring when the ring has changed."""
        return self._pump.bell

    def call(self, function: Callable[[], T]) -> T:
        """Run something in the pump's thread, which owns the socket; waits for it."""
        return self._pump.call(function)

    def check(self) -> None:
        """Raise the link's error, if there is one."""
        if self.error is not None:
            raise ChannelError(f"the channel's socket failed: {self.error!r}. Open the end anew.") from self.error
        if self.link.refused is not None:
            raise self.link.refused

    def close(self, linger: float) -> None:
        """Send what is left, for at most ``linger`` seconds, and close the socket. Blocks until that is done."""
        if self.finished.is_set():
            return
        self.deadline = time.monotonic() + linger
        self._pump.bell.ring()
        self.finished.wait()
        _let_go(self._pump)


class _Pump:
    def __init__(self) -> None:
        self.pid, self.links = os.getpid(), 0  # links: guarded by _LOCK
        self.bell = Bell()
        self._context = zmq.Context()
        self._attached: dict[zmq.Socket[bytes], Attached] = {}
        self._commands: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="weft-pump", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the thread; wait for its result, or raise its error."""
        done = threading.Event()
        outcome: list[Any] = []

        def command() -> None:
            try:
                outcome.append((function(), None))
            except BaseException as error:  # the caller raises it, not the thread
                outcome.append((None, error))
            done.set()

        self._commands.append(command)
        self.bell.ring()
        done.wait()
        value, error = outcome[0]
        if error is not None:
            raise error
        given: T = value
        return given

    def attach(self, make: Callable[[zmq.Context[Any]], Link], bell: Bell, owns: str | None) -> Attached:
        def register() -> Attached:
            if owns is not None and any(attached.owns == owns for attached in self._attached.values()):
                raise ChannelError("the end that was there before is still open. There is one owner at a time")
            attached = Attached(self, make(self._context), bell, owns)
            self._attached[attached.link.socket] = attached
            self._poller.register(attached.link.socket, POLLIN)
            if attached.link.door is not None:
                self._poller.register(attached.link.door.monitor, POLLIN)
            return attached

        return self.call(register)

    def stop(self) -> None:
        self._stopping = True
        self.bell.ring()
        self._thread.join()
        self._context.term()
        self.bell.close()
        _stop_collector()

    def _run(self) -> None:
        self._poller = zmq.Poller()
        bell = self.bell.fileno()
        self._poller.register(bell, POLLIN)
        asked = answering(self._context)
        self._poller.register(asked, POLLIN)
        while not self._stopping:
            ready = dict(self._poller.poll(self._until_deadline()))
            if bell in ready:
                self.bell.clear()
            if asked in ready:
                answer(asked)
            while self._commands:
                self._commands.popleft()()
            for socket, attached in list(self._attached.items()):
                door = attached.link.door
                if door is not None and door.monitor in ready:
                    door.look()
                self._serve(attached, socket in ready)
        asked.close()

    def _serve(self, attached: Attached, ready: bool) -> None:
        link = attached.link
        deadline = attached.deadline  # read before its turn: everything done before the close goes out before the Bye
        try:
            for _ in range(_TURN if ready else 0):
                frames = receive(link.socket)
                if link.door is not None and link.door.undecided:
                    link.door.admit(frames[-1])
                link.take(frames)
                if not readable(link.socket):
                    break
        except zmq.Again:
            pass
        except Exception:  # a peer's nonsense must not stop the other channels
            link.unexpected += 1
        if link.unexpected != attached.counted:
            TALLY.frames += link.unexpected - attached.counted
            attached.counted = link.unexpected
        done = False
        try:
            link.turn()
            if deadline is not None:
                done = link.finish(time.monotonic() >= deadline)
        except Exception as error:  # not caused by a peer: the end must raise it
            attached.error, done = error, deadline is not None
            attached.bell.ring()
        if done:
            del self._attached[link.socket]
            self._poller.unregister(link.socket)
            if link.door is not None:
                self._poller.unregister(link.door.monitor)
                link.door.close()
            link.socket.close()
            attached.finished.set()

    def _until_deadline(self) -> int | None:
        deadlines = [a.deadline for a in self._attached.values() if a.deadline is not None]
        return int(max(0.0, min(deadlines) - time.monotonic()) * 1000) + 1 if deadlines else None


_LOCK = threading.Lock()
_pump: _Pump | None = None


def attach(make: Callable[[zmq.Context[Any]], Link], bell: Bell, owns: str | None = None) -> Attached:
    """Hand a link to this process's pump; starts the pump if there is none.

    ``make(context)`` runs in the pump's thread and makes the link with its socket; its errors are raised here.
    ``bell`` is the end's. ``owns``: where it binds; ChannelError while another link of this process is bound there.
    """
    global _pump
    with _LOCK:
        if _pump is None or _pump.pid != os.getpid():  # a forked child has no threads
            _pump = _Pump()
        pump = _pump
        pump.links += 1
    try:
        return pump.attach(make, bell, owns)
    except BaseException:
        _let_go(pump)
        raise


def _let_go(pump: _Pump) -> None:
    global _pump
    with _LOCK:
        pump.links -= 1
        if pump.links == 0:
            if _pump is pump:
                _pump = None
            pump.stop()


def _stop_collector() -> None:
    """Stop the thread in which pyzmq waits for its zero-copy sends to end, unless other sends still need it.

    pyzmq starts it again when needed.
    """
    collector = garbage.gc
    give_up = time.monotonic() + 1.0
    while collector.refs and time.monotonic() < give_up:
        time.sleep(0.001)
    if not collector.refs:
        collector.stop()
