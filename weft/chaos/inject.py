"""Does to a run what the schedule says, and sees how long it takes to learn again."""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress
from typing import NamedTuple

from weft.chaos.schedule import Fault
from weft.chaos.victim import Victim

SLOW_SECONDS = 3.0
DISK_SECONDS = 5.0
LOOK_SECONDS = 0.05


class Injected(NamedTuple):
    """What was done, and what followed."""

    at: float  # seconds since learning began
    kind: str
    target: str  # the worker's name; "the run"
    recovery: float | None  # seconds until the run had logged learning again; None: not before the next fault

    @property
    def role(self) -> str:
        """The target without its number: ``env`` of ``env-1``."""
        head, _, number = self.target.rpartition("-")
        return head if number.isdigit() else self.target


def inject(victim: Victim, fault: Fault) -> str:
    """Do it; gives the target's name. Blocks while a fault lasts (``slow``, ``disk``)."""
    workers = sorted(victim.workers().items())
    if not workers or fault.kind == "disk":
        return _to_the_run(victim, fault)
    name, pid = workers[int(fault.draw * len(workers))]
    with suppress(ProcessLookupError):  # it has died meanwhile, of an earlier fault
        match fault.kind:
            case "kill":
                os.kill(pid, signal.SIGKILL)
            case "stop":
                os.kill(pid, signal.SIGSTOP)
            case "slow":
                _slow(pid)
    return name


def recovered(victim: Victim, since: float, until: float) -> float | None:
    """Wait until the run has learned after ``since`` (of ``time.time``); the seconds, or None once it is ``until``."""
    while time.time() < until and not victim.ended:
        if victim.learned_at > since:
            return victim.learned_at - since
        time.sleep(LOOK_SECONDS)
    return None


def _to_the_run(victim: Victim, fault: Fault) -> str:
    pid = victim.process.pid
    match fault.kind:
        case "kill" | "stop":  # nobody watches a run that has no workers: it is killed, and started again
            os.kill(pid, signal.SIGKILL)
            victim.process.wait()
            victim.again()
        case "slow":
            _slow(pid)
        case "disk":
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
                time.sleep(DISK_SECONDS)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    return "the run"


def _slow(pid: int) -> None:
    ends = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < ends:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.09)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
