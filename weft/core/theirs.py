"""Tracebacks of the user's own code: our frames above it say nothing that the message does not."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).resolve().parent.parent)
"""The folder of Weft's own code."""

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_theirs(error: BaseException) -> bool:
    """Whether code of the user's, neither Weft's nor an installed package's, was running when it was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return _users(error.filename)
    return any(_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def their_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the user's code on, without Weft's frames; of its causes likewise.

    Where no frame is the user's (an installed environment), all but Weft's.
    """
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        _cut(part)
        following = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
        if following is not None and not any(_users(frame.filename) for frame in following.stack):
            part.__cause__ = part.__context__ = following = None  # how a library came by it
        part = following
    return "".join(shown.format())


def _cut(shown: traceback.TracebackException) -> None:
    if shown.__notes__ is not None:  # by which JAX says that it did the same to its own frames
        shown.__notes__ = [note for note in shown.__notes__ if "JAX_TRACEBACK_FILTERING" not in note]
    frames = list(shown.stack)
    first = next((i for i, frame in enumerate(frames) if _users(frame.filename)), 0)
    kept = [frame for frame in frames[first:] if not frame.filename.startswith(OURS)]
    shown.stack = traceback.StackSummary.from_list(kept)


def _users(file: str) -> bool:
    return not file.startswith(("<", OURS, *_LIBRARIES))
