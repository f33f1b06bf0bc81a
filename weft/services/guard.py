"""A small process that ends what a run has started, should the run be killed with -9. Loads the standard library only.

A worker dies with its launcher by itself; what an environment has started in it does not. The guard is told of process
groups and of processes that left theirs, and kills them when the process that started it is gone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from weft.services.family import Process, kill

LOOK_SECONDS = 0.5


class Guard:
    """The guard's owner. ``close`` ends it, and does not have it kill anything."""

    def __init__(self) -> None:
        # Without site: it is small and there at once. In a session of its own no signal to a group hits it.
        package = str(Path(__file__).resolve().parent.parent.parent)
        program = f"import sys; sys.path.insert(0, {package!r}); from weft.services.guard import watch; watch()"
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def group(self, number: int) -> None:
        """Kill this process group."""
        self._say(f"group {number}")

    def process(self, process: Process) -> None:
        """Kill this process."""
        self._say(f"process {process[0]} {process[1]}")

    def forget(self, number: int) -> None:
        """A process group is gone: its number may be used again."""
        self._say(f"forget {number}")

    def close(self) -> None:
        """End it; may be called twice."""
        self._say("end")
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(OSError):  # it was killed; workers still die with their launcher
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()


def watch() -> None:
    """The guard's main: until it is told to end, or the process that started it is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, groups, processes, rest = os.getppid(), set[int](), set[Process](), b""
    while os.getppid() == parent:
        # A child of the run may hold the pipe's other end open: the end of the pipe is not all that is looked at.
        if not select.select([0], [], [], LOOK_SECONDS)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            what, *numbers = line.decode().split()
            match what, [int(number) for number in numbers]:
                case "group", [group]:
                    groups.add(group)
                case "forget", [group]:
                    groups.discard(group)
                case "process", [pid, began]:
                    processes.add((pid, began))
                case _:
                    return
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for process in processes:
        kill(process)
