"""The processes that a process, or one of its threads, has started, and theirs: found, and ended. Linux only."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeAlias

Process: TypeAlias = tuple[int, int]
"""A process id, and when it began: ids are used again."""

_PYTHONS_OWN = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


class Family:
    """What a thread of this process starts from now on; all threads of process ``pid`` where no thread is given."""

    def __init__(self, pid: int, thread: int | None = None) -> None:
        self._pid, self._thread = pid, thread
        self._others = set(self._found())
        self.known: set[Process] = set()

    @classmethod
    def of_this_thread(cls) -> Self:
        """What the calling thread starts from now on."""
        return cls(os.getpid(), threading.get_native_id())

    def look(self) -> list[Process]:
        """Find what is new, and remember it, also when it is no longer a descendant."""
        new = [p for p in self._found() if p not in self.known and p not in self._others and not _is_pythons_own(p)]
        self.known.update(new)
        return new

    def leave_out(self) -> None:
        """Whatever was started since the last look belongs to something else."""
        self._others.update(p for p in self._found() if p not in self.known)

    def end(self, *, look: bool = True) -> int:
        """Kill all of them that are left, with ``look`` also what is new; how many."""
        if look:
            self.look()
        return sum(kill(process) for process in self.known)

    def _found(self) -> list[Process]:
        found: list[Process] = []
        if self._pid == os.getpid() and _childless():
            return found
        following = _children(self._pid, self._thread)
        while following:
            pid = following.pop()
            began = began_at(pid)
            if began is not None:
                found.append((pid, began))
                following += _children(pid)
        return found


def kill(process: Process) -> bool:
    """Kill -9, if it is still that process and not one that has ended; whether it was."""
    pid, began = process
    if began_at(pid) != began:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def began_at(pid: int) -> int | None:
    """When a process began, in ticks of the clock since boot; None where there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _childless() -> bool:
    """Whether this process has no child at all: one system call, where a look at each of its threads takes hundreds."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _children(pid: int, thread: int | None = None) -> list[int]:
    threads = f"/proc/{pid}/task"
    found: list[int] = []
    with suppress(OSError):
        for one in os.listdir(threads) if thread is None else [str(thread)]:
            with suppress(OSError):
                found += map(int, Path(f"{threads}/{one}/children").read_text().split())
    return found


def _is_pythons_own(process: Process) -> bool:
    try:
        command = Path(f"/proc/{process[0]}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name in command for name in _PYTHONS_OWN)
