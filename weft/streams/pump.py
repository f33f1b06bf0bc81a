"""One thread for all the sockets of a process: it moves frames between them and local slots, and rings local bells.

It looks only at sockets that have something, and at links whose end has touched its ring: a wake costs the same
however many there are.

A ZeroMQ socket belongs to one thread, so the ends of tcp channels never touch it. An end works on a ring in this
process's memory, and a ``Link``, which lives in the pump's thread, carries the ring's contents to the other process.
The thread starts with the first link and ends with the last.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import zmq
from zmq.utils import garbage

from weft.core.errors import ChannelError
from weft.streams.bell import Bell
from weft.streams.door import answer, answering
from weft.streams.line import Line, Lines, Link
from weft.streams.sockets import readable, receive
from weft.streams.tally import TALLY

T = TypeVar("T")

_SOCKETS = 1 << 15  # that ZeroMQ may open; its own limit is 1023
_TURN = 32  # messages taken from one socket before the next socket's turn


class Nudge:
    """Wakes the pump for one link: it looks at no other that has nothing to do."""

    def __init__(self, pump: _Pump, attached: Attached) -> None:
        self._pump, self._attached = pump, attached

    def ring(self) -> None:
        """Something of the link's ring has changed. Any thread; never blocks."""
        pump = self._pump
        pump.touched.append(self._attached)
        if not pump.woken:  # else it has yet to look at what was touched
            pump.woken = True
            pump.bell.ring()


class LateBell:
    """Stands for an end's bell in the pump's thread: rung once for all that the pump has moved before it sleeps again.

    ``told`` is called at once, each time: it says which of many ends was rung.
    """

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.rung: set[Bell] = set()  # the pump's own, once it is attached
        self.told: Callable[[], None] | None = None

    def ring(self) -> None:
        """As ``Bell.ring``; the pump's thread only."""
        if self.told is not None:
            self.told()
        self.rung.add(self._bell)


class Attached:
    """A link that the pump serves, as its end sees it; ``bell`` is the end's. ``token``: of its channel."""

    def __init__(self, pump: _Pump, link: Link, bell: LateBell, token: str) -> None:
        self._pump, self.link, self.bell, self.token = pump, link, bell, token
        self._nudge = Nudge(pump, self)
        self.counted = 0  # of the link's unexpected frames, those in the tally
        self.error: Exception | None = None  # an error on this side: in a socket, or in Weft
        self.deadline: float | None = None  # set by close: the time at which the link gives up
        self.finished = threading.Event()

    def wake(self) -> Nudge:
        """What to ring when the ring has changed."""
        return self._nudge

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
        self._nudge.ring()
        self.finished.wait()
        _let_go(self._pump)


class _Pump:
    def __init__(self) -> None:
        self.pid, self.links = os.getpid(), 0  # links: guarded by _LOCK
        self.bell = Bell()
        self.touched: deque[Attached] = deque()  # by the ends' threads
        self.woken = False  # the bell was rung for what they touched
        self._rung: set[Bell] = set()  # bells of ends, to be rung
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, _SOCKETS)
        self._lines = Lines(self._context)
        self._attached: dict[Link, Attached] = {}
        self._by_fd: dict[int, Line] = {}  # of a line's socket, and of its door
        self._again: set[Line] = set()  # lines that have more than their turn took
        self._closing: set[Attached] = set()
        self._commands: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._epoll = select.epoll()
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

    def attach(self, make: Callable[[Lines], Link], bell: LateBell, token: str) -> Attached:
        def register() -> Attached:
            bell.rung = self._rung
            link = make(self._lines)
            line = link.line
            attached = Attached(self, link, bell, token)
            self._attached[link] = attached
            if line.fd not in self._by_fd:
                self._watch(line)
            line.add(link, token)
            self._again.add(line)  # what was sent or asked of the socket may have taken note of what came meanwhile
            return attached

        return self.call(register)

    def stop(self) -> None:
        self._stopping = True
        self.bell.ring()
        self._thread.join()
        self._epoll.close()
        self._context.term()
        self.bell.close()
        _stop_collector()

    def _watch(self, line: Line) -> None:
        """A socket's descriptor says that the socket should be looked at, and is silent until that was done."""
        for fd in _descriptors(line):
            self._by_fd[fd] = line
            self._epoll.register(fd, select.EPOLLIN)

    def _run(self) -> None:
        bell = self.bell.fileno()
        asked = answering(self._context)
        asked_fd = int(asked.getsockopt(zmq.FD))
        for fd in (bell, asked_fd):
            self._epoll.register(fd, select.EPOLLIN)
        while not self._stopping:
            ready = [fd for fd, _ in self._epoll.poll(0 if self._again else self._until_deadline())]
            if bell in ready:
                self.bell.clear()
                self.woken = False  # before it looks: what is touched from now on rings again
            if asked_fd in ready:
                while readable(asked):
                    answer(asked)
            while self._commands:
                self._commands.popleft()()
            lines = {self._by_fd[fd] for fd in ready if fd in self._by_fd} | self._again
            moved: dict[Attached, None] = {}
            for line in lines:
                self._hear(line, moved)
            while self.touched:
                attached = self.touched.popleft()
                if not attached.finished.is_set():
                    moved[attached] = None
                    if attached.deadline is not None:
                        self._closing.add(attached)
            moved.update(dict.fromkeys(self._closing))
            for attached in moved:
                self._serve(attached)
                lines.add(attached.link.line)
            while self._rung:
                self._rung.pop().ring()
            self._again = {line for line in lines if line.fd in self._by_fd and readable(line.socket)}
        asked.close()

    def _hear(self, line: Line, moved: dict[Attached, None]) -> None:
        """Hand the messages of a socket to their links; those have ``moved``."""
        door = line.door
        if door is not None:
            door.look()
        try:
            for _ in range(_TURN):
                if not readable(line.socket):
                    return
                frames = receive(line.socket)
                if door is not None and door.undecided:
                    door.admit(frames[-1])
                link = line.link_of(frames)
                if link is None:  # of a channel that is not open here, unless it is only a peer that connects
                    TALLY.frames += len(frames) != 2 or len(frames[1]) > 0
                    continue
                moved[self._attached[link]] = None
                try:
                    link.take(frames)
                except Exception:  # a peer's nonsense must not stop the other channels
                    link.unexpected += 1
        except zmq.Again:
            pass

    def _serve(self, attached: Attached) -> None:
        link = attached.link
        deadline = attached.deadline  # read before its turn: everything done before the close goes out before the Bye
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
            self._detach(attached)

    def _detach(self, attached: Attached) -> None:
        line = attached.link.line
        del self._attached[attached.link]
        self._closing.discard(attached)
        if line.links == 1:  # before its descriptors are closed
            for fd in _descriptors(line):
                self._epoll.unregister(fd)
                del self._by_fd[fd]
        self._lines.release(attached.token, line)
        attached.finished.set()

    def _until_deadline(self) -> float | None:
        deadlines = [a.deadline for a in self._closing if a.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) + 0.001 if deadlines else None


def _descriptors(line: Line) -> list[int]:
    return [line.fd] if line.door is None else [line.fd, line.door.fd]


_LOCK = threading.Lock()
_pump: _Pump | None = None


def attach(make: Callable[[Lines], Link], bell: LateBell, token: str) -> Attached:
    """Hand a link to this process's pump; starts the pump if there is none.

    ``make(lines)`` runs in the pump's thread and makes the link with its line; its errors are raised here.
    ``bell`` is the end's, ``token`` its channel's.
    """
    global _pump
    with _LOCK:
        if _pump is None or _pump.pid != os.getpid():  # a forked child has no threads
            _pump = _Pump()
        pump = _pump
        pump.links += 1
    try:
        return pump.attach(make, bell, token)
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
