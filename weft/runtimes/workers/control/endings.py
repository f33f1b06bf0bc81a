"""How processes end: killed with all that they have started, and what an exit code says."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 a worker and what it has started, whether or not it lives itself."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""Signals that a process brings upon itself."""


def was_killed(code: int | None) -> bool:
    """Whether an exit code says that another process killed this one."""
    return code is not None and code < 0 and -code not in CRASHES


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"left with exit code {code}"
