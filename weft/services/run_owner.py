"""Whether a run is under way, and in which process of this machine: read from its folder's lock, which is not taken."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from weft.core.errors import RunError
from weft.services.run_folder import LOCK

LOOK_SECONDS = 0.1


def owner_of(path: Path) -> int | None:
    """The process that trains in a run's folder; None where none does, or it cannot be read."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.read(descriptor, 32).decode(errors="replace").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)


def stop(path: Path, seconds: float, *, at_once: bool = False) -> bool:
    """Have a run save and end, as Ctrl-C does; ``at_once``: as a second one does. Waits; whether it ended in time.

    Raises RunError where nothing trains there, or its process is another user's.
    """
    owner = owner_of(path)
    if owner is None:
        raise RunError(f"run {path} is not under way on this machine: there is nothing to stop.")
    try:
        os.kill(owner, signal.SIGINT)
        if at_once:
            time.sleep(LOOK_SECONDS)
            with suppress(ProcessLookupError):
                os.kill(owner, signal.SIGINT)
    except ProcessLookupError:
        return True
    except PermissionError:
        raise RunError(f"run {path} is under way in process {owner}, which is another user's.") from None
    until = time.monotonic() + seconds
    while owner_of(path) == owner:
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS)
    return True
