"""A worker's main: reads its task from the launcher, opens its channels, and runs its sides. ``python -m … FD``.

The first side runs in the main thread, others in threads of their own; one more listens to the launcher. The process
dies with its launcher. An env worker never gets as far as the import of JAX.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft.runtimes.workers.control.link import Link, LinkClosed, LinkMessage

SWITCH_SECONDS = 2e-4
"""How long a thread may keep the interpreter while another wants it, where a worker has several sides."""


def main(arguments: list[str]) -> int:
    """Serve the launcher at the other end of the inherited socket, to the run's end. Returns the exit code."""
    die_with_parent()
    faulthandler.enable()  # a crash in C code leaves the stacks in the log
    # The launcher answers them, and tells workers what to do. Handled and not ignored: what an environment starts would
    # inherit that it ignores them, and its ``terminate()`` would do nothing.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_answer_signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # the launcher blocked them till now
    link = Link(socket.socket(fileno=int(arguments[0])))
    try:
        if len(arguments) > 1:
            warm_up(**json.loads(arguments[1]))
        task = link.hear()
        assert task is not None
        _take_place(task.body)
        return _serve(link, task)
    except LinkClosed:
        return 1


def warm_up(jax: bool, alone: bool, roles: list[str]) -> None:
    """Load what a worker of this kind needs, before there is a task. What cannot be loaded yet is left for then."""
    from weft.graph.role import role

    with suppress(Exception):
        import weft.envs.registry
        import weft.runtimes.workers.wiring
    if not jax:
        with suppress(Exception):
            import weft.envs.gymnasium
            import weft.envs.vectoriser  # noqa: F401
    with suppress(Exception):
        if jax:
            from weft.runtimes.prepare.jax_setup import set_up

            set_up(cache=False)
            import jax as loaded

            if alone:
                loaded.local_devices()
    for name in roles:
        with suppress(Exception):  # of the user's: it is registered where their module is imported
            package = sys.modules[type(role(name).code()).__module__].__package__ or ""
            if jax and package.partition(".")[0] == "weft":  # their sides, which are imported where they are made
                for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
                    importlib.import_module(module.name)


def _take_place(task: dict[str, Any]) -> None:
    """A spare becomes the worker that its task names: it writes its log, and holds no channel of others."""
    if task.get("log") is None:
        return
    for fd in task["not_yours"]:
        with suppress(OSError):
            os.close(fd)
    with suppress(OSError), open(task["log"], "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _serve(link: Link, task: LinkMessage) -> int:
    from weft.runtimes.workers.side import Stopped
    from weft.runtimes.workers.wiring import Wired, wire

    failed = threading.Event()

    def guarded(doing: Callable[[], Any], side: Any = None) -> None:
        try:
            doing()
        except Stopped:
            pass
        except LinkClosed:
            os._exit(1)
        except BaseException as error:
            failed.set()
            if side is None:
                _say_error(link, error, "as it started")
            else:
                fragment = made.task.blueprint.sides[side.context.index].stage
                _say_error(link, error, f"in fragment {fragment}, at learn step {side.context.learned + 1}")

    wired: Wired | None = None

    def build() -> None:
        nonlocal wired
        wired = wire(link, task)

    guarded(build)
    if wired is None:
        return 1
    made: Wired = wired
    if len(made.sides) > 1:  # act must not wait 5 ms for every turn while learn prepares something
        sys.setswitchinterval(SWITCH_SECONDS)
    guarded(made.start)
    if failed.is_set():
        return 1
    link.say("ready", made.ready)
    threading.Thread(target=_listen, args=(link, made), daemon=True, name="weft-link").start()

    def run(side: Any) -> None:
        assert made.task.pulse is not None
        made.task.pulse.runs_in(side.context.index, threading.get_ident())
        side.run()

    rest = [
        threading.Thread(
            target=guarded, args=(lambda side=side: run(side), side), daemon=True, name=f"weft-{side.context.name}"
        )
        for side in made.sides[1:]
    ]
    for thread in rest:
        thread.start()
    guarded(made.sides[0].run, made.sides[0])
    for thread in rest:
        thread.join(timeout=5.0)
    made.close()
    return 1 if failed.is_set() else 0


def _listen(link: Link, made: Any) -> None:
    """Answer the launcher; leave at once where it is gone."""
    try:
        while True:
            message = link.hear()
            if message is not None:
                heed(made, message)
    except LinkClosed:
        os._exit(1)
    except BaseException as error:  # a launcher that waits for an answer must not wait for ever
        _say_error(link, error, "as it heard the launcher")


def heed(made: Any, message: LinkMessage) -> None:
    """Do what the launcher asks of a worker's sides."""
    match message.topic:
        case "save":
            for side in made.sides:
                if side.context.index in message.body["sides"]:
                    side.context.ask()
        case "repoint":  # the other end of a wire has gone to another host
            made.task.repoint(**message.body)


def _say_error(link: Link, error: BaseException, where: str) -> None:
    """Tell the launcher what was raised, and ``where``: "in fragment learn, at learn step 7"."""
    traceback.print_exception(error)  # into the worker's log, all of it
    try:
        link.say("error", error_report(error, where))
    except LinkClosed:
        os._exit(1)


def error_report(error: BaseException, where: str) -> dict[str, str]:
    """An error in words, and its traceback: where the user's own code raised, that of their frames, as in one process.

    An environment's fault says by itself which environment it was, and at which of its steps.
    """
    from weft.core.errors import EnvironmentFault, WeftError
    from weft.core.theirs import is_theirs, their_traceback

    name, text = type(error).__name__, str(error)
    if isinstance(error, WeftError):
        if not isinstance(error, EnvironmentFault):
            text = f"{where}: {text}"
        trace = "" if error.__cause__ is None else their_traceback(error.__cause__)
    else:
        first = text.partition("\n")[0]  # the traceback has the rest
        text = f"{where}: {name}: {first}" if first else f"{where}: {name}"
        trace = their_traceback(error) if is_theirs(error) else "".join(traceback.format_exception(error))
    return {"error": name, "text": text, "traceback": trace}


def _answer_signals() -> None:
    """A child that an environment forks answers signals as any process does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def die_with_parent() -> None:
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
    os._exit(code)  # do not wait for threads of JAX or of an environment
