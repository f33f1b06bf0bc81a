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
    recovery: float | None  # seconds until it was replaced and the run learned; None: not before the next fault

    @property
    def role(self) -> str:
        """The target without its number: ``env`` of ``env-1``."""
        head, _, number = self.target.rpartition("-")
        return head if number.isdigit() else self.target


class Hit(NamedTuple):
    """What a fault has hit: a worker's name, or "the run"; ``pid`` where that process must be replaced, else 0."""

    target: str
    pid: int
    at: float  # of ``time.time``


def inject(victim: Victim, fault: Fault) -> Hit:
    """Do it. Blocks while a fault lasts (``slow``, ``disk``), and counts from its end."""
    workers = sorted(victim.workers().items())
    if not workers or fault.kind == "disk":
        return Hit(_to_the_run(victim, fault), 0, time.time())
    name, pid = workers[int(fault.draw * len(workers))]
    began = time.time()
    with suppress(ProcessLookupError):  # it has died meanwhile, of an earlier fault
        match fault.kind:
            case "kill":
                os.kill(pid, signal.SIGKILL)
            case "stop":
                os.kill(pid, signal.SIGSTOP)
            case "slow":
                _slow(pid)
                return Hit(name, 0, time.time())
    return Hit(name, pid, began)


def recovered(victim: Victim, hit: Hit, until: float) -> float | None:
    """Wait until what was hit lives anew and the run has learned since; the seconds, or None once it is ``until``.

    A learner's death takes back what was logged since the last checkpoint, so only what comes after a replacement
    began is learning again. ``until`` is of ``time.time``.
    """
    replaced: float | None = None  # when the run had learned last, as the new one came
    while time.time() < until and not victim.ended:
        if replaced is None and (not hit.pid or victim.workers().get(hit.target, hit.pid) != hit.pid):
            replaced = victim.learned_at
        elif replaced is not None:
            learned = victim.learned_at
            if learned > replaced:
                return time.time() - hit.at
            replaced = min(replaced, learned)
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
