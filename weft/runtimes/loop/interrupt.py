"""SIGINT and SIGTERM: the first asks the run to save and leave, a second SIGINT ends it at once.

While a run begins there is nothing to save, and the first ends it. What the main thread does not answer to in time, the
lookout (``lookout.py``) ends.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from weft.core.errors import LeaveAtOnce


class Interrupted(BaseException):
    """A signal came while the run began: nothing has been done that could be saved."""


class Abandoned(LeaveAtOnce):
    """The run was to end and what it waited for did not; the message says what. What was saved before is kept."""

    def __init__(self, signal_: signal.Signals, text: str) -> None:
        super().__init__(text)
        self.signal = signal_


class Interrupt:
    """Set by the first signal; ``signal`` is which, ``since`` when, ``twice`` whether another SIGINT came.

    ``raises``: the first signal raises Interrupted in the main thread. ``abandoned``: why nothing more is waited for.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.since = 0.0
        self.twice = False
        self.raises = False
        self.abandoned = ""
        self.wakes: int | None = None  # a descriptor that gets a byte for each signal, even where Python does not run

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raise Interrupted where a signal came."""
        if self:
            raise Interrupted

    def came(self, number: int) -> None:
        """A signal came. Called by the main thread's handler, and by the lookout where that does not run."""
        if self.signal is None:
            self.signal, self.since = signal.Signals(number), time.monotonic()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While inside, signals set the Interrupt; afterwards, handlers are as before.

    Only the main thread can take signals: elsewhere the Interrupt is never set.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    handled = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal handled
        if interrupt.abandoned and interrupt.signal is not None:
            raise Abandoned(interrupt.signal, interrupt.abandoned)
        handled += 1
        interrupt.came(number)
        if handled > 1 and number == signal.SIGINT:
            interrupt.twice = True
            raise LeaveAtOnce
        if interrupt.raises and handled == 1:
            raise Interrupted

    before: dict[int, Any] = {}
    interrupt.wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    woken_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, handle)
    try:
        yield interrupt
    finally:
        for handled_before, handler in before.items():
            signal.signal(handled_before, handler)
        signal.set_wakeup_fd(woken_before)
        os.close(wake)
        os.close(interrupt.wakes)
        interrupt.wakes = None
