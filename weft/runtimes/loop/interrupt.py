"""SIGINT and SIGTERM: the first asks the run to save and leave, a second SIGINT ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupt:
    """Set by the first signal; ``signal`` is which."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While inside, signals set the Interrupt; afterwards, handlers are as before.

    Only the main thread can take signals: elsewhere the Interrupt is never set.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        interrupt.signal = signal.Signals(number)

    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, handle)
    try:
        yield interrupt
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)
