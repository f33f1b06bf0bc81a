"""What is done about a host environment that goes wrong, and how it is told: counted, with one example of each kind.

An environment that raises is reset, from a seed of its own, and the rest go on. What the step before the reset would
have given is not known: its record is marked not ``valid``, so that nothing is learned from it, and truncated, so that
what follows counts as a new episode. One that fails three times without a good step in between is made anew; if that
fails three times as well it is given up, and all its records from then on are not valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from weft.envs.protocol import EnvSource

ERRORS = ("reset", "fail")
"""What follows where an environment raises: that environment begins anew, or the run ends."""

BOUNDS = ("warn", "fail", "ignore")
"""What follows where an observation is outside its Box."""

FAILS_FAST = 3
"""Failures of an environment without a good step in between before it is made anew; and so many again, given up."""


@dataclass(frozen=True)
class Guards:
    """What an environment's batch is to do about faults; unless told otherwise an exception ends the run."""

    errors: str = "fail"
    bounds: str = "warn"


UNGUARDED = Guards()


def guarded(source: EnvSource, guards: Guards) -> EnvSource:
    """The source with these guards, where its host environments know any; its spec says whether steps may fail."""
    make = getattr(source.host, "guarded", None)
    if make is None:
        return source
    host = make(guards)
    return replace(source, spec=host.spec, host=host)


class Trouble(NamedTuple):
    """Faults of one kind; plain values, which travel as JSON."""

    kind: str  # what they have in common, in words: "ZeroDivisionError in step (walk.py:31)"
    errors: int  # how many steps or resets raised
    outside: int  # how many observations were outside their Box
    text: str = ""  # the first of them: which environment, seed and step; empty where it was told before
    traceback: str = ""  # of the user's own frames


class Troubles:
    """Counts what an environment's batch met, until the runtime takes it."""

    def __init__(self) -> None:
        self._new: dict[str, Trouble] = {}
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._new)

    def add(self, kind: str, example: Callable[[], tuple[str, str]], *, errors: int = 0, outside: int = 0) -> None:
        """Count some; ``example`` gives text and traceback, and is called for the first of its kind alone."""
        known = self._new.get(kind)
        if known is None:
            text, trace = ("", "") if kind in self._told else example()
            self._told.add(kind)
            known = Trouble(kind, 0, 0, text, trace)
        self._new[kind] = known._replace(errors=known.errors + errors, outside=known.outside + outside)

    def take(self) -> list[Trouble]:
        """What came since it was last taken."""
        taken, self._new = list(self._new.values()), {}
        return taken


def take_troubles(env: Any) -> list[Trouble]:
    """What a host environment met since it was last asked; nothing where it keeps no count."""
    troubles: Troubles | None = getattr(env, "troubles", None)
    return troubles.take() if troubles else []


class Remedy(Enum):
    """What to try for an environment that failed."""

    RESET = "reset"
    REMAKE = "remake"
    GIVE_UP = "give up"


class Failures:
    """How often each environment of a batch failed without a good step in between, and which are given up."""

    def __init__(self, num_envs: int) -> None:
        self._in_a_row = [0] * num_envs
        self._last = [-2] * num_envs  # the batch step of each one's last failure
        self.given_up: set[int] = set()

    def add(self, row: int, step: int) -> Remedy:
        """Row ``row`` failed at batch step ``step``, or in the reset that followed a failure there."""
        self._in_a_row[row] = 1 if step > self._last[row] + 1 else self._in_a_row[row] + 1
        self._last[row] = step
        if self._in_a_row[row] >= 2 * FAILS_FAST:
            self.given_up.add(row)
            return Remedy.GIVE_UP
        return Remedy.REMAKE if self._in_a_row[row] == FAILS_FAST else Remedy.RESET

    def saved(self, row: int) -> list[int]:
        """For a snapshot: JSON."""
        return [self._in_a_row[row], self._last[row], int(row in self.given_up)]

    def restore(self, row: int, saved: list[int]) -> None:
        """Go on from what ``saved`` gave."""
        self._in_a_row[row], self._last[row], given_up = saved
        if given_up:
            self.given_up.add(row)
