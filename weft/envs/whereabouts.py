"""Which environment a thread is in, read from its frames: what steps quickly need not say where it is.

Another thread looks, now and then (``sys._current_frames``). The batches of environments keep the names that are read
here: ``row`` is the local name of the environment that is being called, ``done`` of the actions that were replayed.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

_CALLS = {"step": "step()", "_reset_row": "reset()", "_begin": "reset()", "_make": "being made", "close": "close()"}


class Whereabouts(NamedTuple):
    """Environment ``first``, or ``rows`` of them from there on that are called as one; ``steps`` they have made.

    ``replayed`` counts the actions that were replayed. While any of it changes, the environments make progress.
    """

    first: int
    rows: int
    call: str
    steps: int
    replayed: int

    def __str__(self) -> str:
        last = self.first + self.rows - 1
        who = f"environment {self.first} has" if self.rows == 1 else f"environments {self.first} to {last} have"
        again = f", {self.replayed} of its actions replayed" if self.replayed else ""
        return f"{who} not returned from {self.call} after {self.steps} steps{again}"


def environment_in(frame: FrameType | None) -> Whereabouts | None:
    """The environment that the thread with this innermost frame is in, or None."""
    replayed = 0
    while frame is not None:
        code = frame.f_code
        if __package__ == frame.f_globals.get("__package__"):
            if code.co_name == "replay":
                replayed = int(frame.f_locals.get("done", 0))
            elif code.co_varnames[:1] == ("self",) and (found := _called(frame, replayed)) is not None:
                return found
        frame = frame.f_back
    return None


def _called(frame: FrameType, replayed: int) -> Whereabouts | None:
    name = frame.f_code.co_name
    if name not in _CALLS and name not in ("_replay", "_call", "restore"):
        return None
    names: dict[str, Any] = frame.f_locals
    batch = names["self"]
    first = getattr(batch, "_first_index", None)
    counting = getattr(batch, "_rows", batch)  # the vectoriser's rows count its steps
    steps = int(getattr(counting, "steps", getattr(counting, "_steps", 0)))
    if first is None:
        return None
    call = _CALLS.get(name, "step()")
    if name == "_make":
        return Whereabouts(int(names.get("index", first)), 1, call, 0, 0)
    if "row" in names:
        return Whereabouts(first + int(names["row"]), 1, call, steps, replayed)
    if name == "_call":
        call = f"{names['doing']}()"
    return Whereabouts(first, int(getattr(batch, "_num_envs", 1)), call, steps, replayed)
