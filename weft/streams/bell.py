"""Bells: an end sleeps on its bell, and the other end rings it. An eventfd on Linux, a pipe elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

T = TypeVar("T")


class Rings(Protocol):
    """Whatever can be rung: a bell, or what stands for one."""

    def ring(self) -> None:
        """Wake whoever waits. Any thread; never blocks."""
        ...


class Bell:
    """Any process that has it may ring it; one thread at a time waits on it. It remembers a ring, but not how many.

    Create it in the launcher, pass ``fds`` to children, and open it there with ``from_fd(*fds)``. ``fileno()`` becomes
    readable when the bell is rung, so it can also be polled together with sockets.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._fd, self._ring_fd = fd, fd
        else:  # pragma: no cover - not Linux
            self._fd, self._ring_fd = os.pipe()
            os.set_blocking(self._fd, False)
            os.set_blocking(self._ring_fd, False)

    @classmethod
    def from_fd(cls, fd: int, ring_fd: int | None = None) -> Self:
        """Open a bell that was made elsewhere, by its ``fds``. This bell now owns the descriptors, and closes them."""
        bell = cls.__new__(cls)
        bell._fd, bell._ring_fd = fd, fd if ring_fd is None else ring_fd
        return bell

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors that a child must inherit: one, or the two ends of a pipe."""
        return (self._fd,) if self._fd == self._ring_fd else (self._fd, self._ring_fd)

    def ring(self) -> None:
        """Wake the thread that waits, or the next one that will. Never blocks. On a closed bell it does nothing."""
        if self._ring_fd < 0:
            return
        # A full counter or pipe was rung already; a pipe without a reader has nothing to wake.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._ring_fd, _ONE)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the bell is rung, at most ``timeout`` seconds (None: for ever; 0: only look); then clear it.

        Returns True if it was rung, before the call or during it. Does not spin, and lets other threads run.
        """
        poll = select.poll()  # a new one each time: one poll object cannot be used by two threads
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(None if timeout is None else max(0.0, timeout) * 1000.0):
            return False
        return self.clear()

    def wait_for(self, look: Callable[[], T | None], timeout: float | None = None) -> T | None:
        """Call ``look()`` until it gives something, and wait between calls; None after ``timeout`` seconds.

        With a timeout of 0 or less it looks once.
        """
        found = look()
        if found is not None or (timeout is not None and timeout <= 0):
            return found
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            rung = (left is None or left > 0) and self.wait(left)
            found = look()
            if found is not None or (not rung and left is not None):
                return found

    def clear(self) -> bool:
        """Forget the ring; returns True if there was one. Does not block."""
        try:
            os.read(self._fd, 8 if self._fd == self._ring_fd else 4096)
        except BlockingIOError:  # another thread cleared it first
            return False
        return True

    def fileno(self) -> int:
        """The descriptor that becomes readable when the bell is rung."""
        return self._fd

    def close(self) -> None:
        """Close the descriptors; may be called twice."""
        for fd in self.fds:
            if fd >= 0:
                os.close(fd)
        self._fd = self._ring_fd = -1


_ONE = (1).to_bytes(8, sys.byteorder)  # an eventfd adds this number to its counter
