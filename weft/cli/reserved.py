"""Keeping stdout for the one line of JSON that was asked for, whatever libraries and environments print."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def stdout_reserved() -> Iterator[None]:
    """While inside, what anything prints on stdout goes to stderr: Python, C libraries, child processes."""
    try:
        out, err = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # replaced by something that is no file, as tests do, or closed
        with redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    kept = os.dup(out)
    os.dup2(err, out)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        with suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)  # what C libraries still hold must not come out after the JSON
        sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)
