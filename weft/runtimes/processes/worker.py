"""A worker's main: reads its task from the launcher, opens its channels, and runs its sides. ``python -m … FD``.

The first side runs in the main thread, others in threads of their own; one more listens to the launcher. The process
dies with its launcher. An env worker never gets as far as the import of JAX.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from weft.runtimes.processes.link import Link, LinkClosed, Said


def main(arguments: list[str]) -> int:
    """Serve the launcher at the other end of the inherited socket, to the run's end. Returns the exit code."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher has it too, and says what is to be done
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # the launcher blocked them till now
    link = Link(socket.socket(fileno=int(arguments[0])))
    try:
        task = link.hear()
        assert task is not None
        return _serve(link, task)
    except LinkClosed:
        return 1


def _serve(link: Link, task: Said) -> int:
    from weft.runtimes.processes.side import Stopped
    from weft.runtimes.processes.wiring import Wired, wire

    failed = threading.Event()

    def guarded(doing: Callable[[], Any]) -> None:
        try:
            doing()
        except Stopped:
            pass
        except LinkClosed:
            os._exit(1)
        except BaseException as error:
            failed.set()
            _say_error(link, error)

    wired: Wired | None = None

    def build() -> None:
        nonlocal wired
        wired = wire(link, task)

    guarded(build)
    if wired is None:
        return 1
    made: Wired = wired
    guarded(made.start)
    if failed.is_set():
        return 1
    link.say("ready", made.ready)
    threading.Thread(target=_listen, args=(link, made), daemon=True, name="weft-link").start()
    rest = [
        threading.Thread(target=guarded, args=(side.run,), daemon=True, name=f"weft-{side.post.name}")
        for side in made.sides[1:]
    ]
    for thread in rest:
        thread.start()
    guarded(made.sides[0].run)
    for thread in rest:
        thread.join(timeout=5.0)
    made.close()
    return 1 if failed.is_set() else 0


def _listen(link: Link, made: Any) -> None:
    """Answer the launcher; leave at once where it is gone."""
    try:
        while True:
            said = link.hear()
            if said is not None and said.kind == "save":
                for side in made.sides:
                    if side.post.index in said.body["sides"]:
                        side.post.ask()
    except LinkClosed:
        os._exit(1)
    except BaseException as error:  # a launcher that waits for an answer must not wait for ever
        _say_error(link, error)


def _say_error(link: Link, error: BaseException) -> None:
    """Tell the launcher what was raised; its words, and where the user's own code raised, their traceback."""
    from weft.core.errors import WeftError

    cause = error.__cause__ if isinstance(error, WeftError) else error
    theirs = "".join(traceback.format_exception(cause)) if cause is not None else ""
    traceback.print_exception(error)  # into the worker's log, all of it
    try:
        link.say("error", {"kind": type(error).__name__, "text": str(error), "traceback": theirs})
    except LinkClosed:
        os._exit(1)


def _die_with_parent() -> None:
    """Be killed when the launcher dies, however it dies (Linux; elsewhere the closed link does it)."""
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # JAX's and an environment's own threads have nothing left to say
