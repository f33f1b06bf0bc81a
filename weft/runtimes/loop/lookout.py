"""A thread beside the training loop: it names what does not return, and ends a run that cannot heed a signal.

In one process nobody can kill an environment that hangs. So it is named, with the stack where it stands, after
``hang_seconds``, and a signal ends the run all the same:

                              SIGINT          SIGTERM
    says what it waits for    after 2 s       after 2 s
    gives up waiting          after 6.5 s     after 14 s     at once where something was named before
    ends the process          3 s later       3 s later      where the main thread runs no Python: C code that hangs
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from weft.core.theirs import OURS
from weft.envs.whereabouts import environment_in
from weft.runtimes.loop.engine import Engine
from weft.runtimes.loop.interrupt import Interrupt
from weft.runtimes.stacks import frame_of, is_compiling, is_computing
from weft.services.family import Family, Process
from weft.services.guard import Guard

LOOK_SECONDS = 0.25
"""From one look to the next: longer ones are not counted, so that nobody is blamed when all of it was stopped."""

SAY_SECONDS = 2.0
GIVE_UP_SECONDS = {signal.SIGINT: 6.5, signal.SIGTERM: 14.0}
END_SECONDS = {signal.SIGINT: 9.5, signal.SIGTERM: 19.0}
TWICE_SECONDS = 4.0
"""The time that a run has to leave after a second SIGINT; in workers it kills them."""


class Lookout(threading.Thread):
    """Looks at the thread that made it, which trains, until ``close``. ``say`` may be set to what shows warnings.

    ``family`` is what environments of this process have started.
    """

    def __init__(
        self, engine: Engine, interrupt: Interrupt, hang_seconds: float, family: Family, say: Callable[[str], None]
    ) -> None:
        super().__init__(daemon=True, name="weft-lookout")
        self._engine, self._interrupt, self._hang_seconds, self.say = engine, interrupt, hang_seconds, say
        self._thread = threading.get_ident()
        self._closed = threading.Event()
        self.family = family
        self._guard: Guard | None = None
        self._guarded: set[Process] = set()
        self._shown: Any = None
        self._idle = 0.0
        self._named = ""  # what does not return
        self._said = False
        self._signals = 0
        self._abandoned_at = 0.0  # seconds after the signal

    def run(self) -> None:
        """Look, again and again."""
        while not self._closed.is_set():
            self._hear(LOOK_SECONDS)
            self._look()
            self._follow()
            if self._interrupt:
                self._press()

    def close(self) -> None:
        """Look no more, and end what environments have started and not ended themselves."""
        self._closed.set()
        self.join()
        self.family.end(look=self._engine.progress() is not None)
        if self._guard is not None:
            self._guard.close()

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """What is started inside belongs to no environment."""
        if self._engine.progress() is not None:
            self.family.look()
        yield
        self.family.leave_out()

    def _follow(self) -> None:
        """What environments of this process have started must not outlive the run, even if it is killed."""
        if self._engine.progress() is not None:  # else what it starts are workers
            self.family.look()
        for process in self.family.known - self._guarded:
            self._guard = self._guard or Guard()
            self._guard.process(process)
            self._guarded.add(process)

    def _hear(self, seconds: float) -> None:
        """Wait, and take signals that the main thread may be unable to."""
        wakes = self._interrupt.wakes
        if wakes is None:
            self._closed.wait(seconds)
            return
        if not select.select([wakes], [], [], seconds)[0]:
            return
        for number in os.read(wakes, 64):
            if number in (signal.SIGINT, signal.SIGTERM) and not self._interrupt.abandoned:
                self._signals += 1
                self._interrupt.came(number)
                if self._signals > 1 and number == signal.SIGINT:
                    self._interrupt.twice, self._interrupt.since = True, time.monotonic()

    def _look(self) -> None:
        frame, progress = frame_of(self._thread), self._engine.progress()
        shown = progress, environment_in(frame)
        if progress is None or shown != self._shown or is_compiling(frame):
            self._shown, self._idle, self._named = shown, 0.0, ""
            return
        self._idle += LOOK_SECONDS
        if self._idle >= self._hang_seconds and not self._named:
            self._named = self._what(frame)
            self.say(
                f"{self._named} for {self._idle:.0f} s. In one process the run cannot go on until it does; Ctrl-C or "
                f'SIGTERM ends it. In a worker of its own it would be replaced: --plan "env | act+learn". It stands '
                f"here:\n{_innermost(frame)}"
            )

    def _what(self, frame: FrameType | None) -> str:
        where = environment_in(frame)
        if where is not None:
            return str(where)
        return "a learn step has computed" if is_computing(frame) else "the run has made no progress"

    def _press(self) -> None:
        """The run is to end: see to it that it does."""
        interrupt = self._interrupt
        assert interrupt.signal is not None
        waited = time.monotonic() - interrupt.since
        if interrupt.twice:
            if waited > TWICE_SECONDS:
                self._end("interrupted twice")
            return
        if waited > END_SECONDS[interrupt.signal] or (self._abandoned_at and waited > self._abandoned_at + 3.0):
            self._end(interrupt.abandoned)
        awaited = self._named or self._awaited()
        if not self._said and waited > SAY_SECONDS:
            self._said = True
            left = GIVE_UP_SECONDS[interrupt.signal] - waited
            if left > 0.5 and not self._named:
                self.say(f"{interrupt.signal.name}: waiting for {awaited}, for {left:.0f} s more")
        if not interrupt.abandoned and (self._named or waited > GIVE_UP_SECONDS[interrupt.signal]):
            self._abandoned_at = waited
            interrupt.abandoned = self._named or f"waited {waited:.0f} s for {awaited}"
            # To that thread: a call that sleeps is woken. The handler raises.
            signal.pthread_kill(threading.main_thread().ident or 0, interrupt.signal)

    def _awaited(self) -> str:
        frame = frame_of(self._thread)
        if environment_in(frame) is not None:
            return str(environment_in(frame))
        return "JAX, which compiles" if is_compiling(frame) else self._engine.awaited()

    def _end(self, why: str) -> None:
        """End the process, whatever its main thread does; but not that of a notebook or a prompt."""
        interactive = hasattr(sys, "ps1") or "ipykernel" in sys.modules
        if interactive and self._interrupt.signal == signal.SIGINT:
            return
        assert self._interrupt.signal is not None
        print(
            f"weft: {self._interrupt.signal.name}: {why}. Left at once; what was saved before is kept", file=sys.stderr
        )
        sys.stderr.flush()
        os._exit(128 + self._interrupt.signal)


def _innermost(frame: FrameType | None) -> str:
    """The stack from the last frame that is ours on."""
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    ours = [i for i, line in enumerate(stack) if line.filename.startswith(OURS)]
    return "".join(traceback.format_list(stack[ours[-1] if ours else 0 :]))
