"""Which fault comes when: a list that follows from a seed, so that a run under faults can be repeated. Pure.

kill    kill -9 of a worker; where there are none, of the whole run, which is started again
stop    SIGSTOP of a worker, for good: the watch must find it
slow    a worker gets a tenth of its time for a while
disk    for a while nothing can be written: every write of the launcher fails
raise   environments raise: not at a moment, but in a share of their steps all the time
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from weft.core.errors import UnknownName

AT_A_MOMENT = ("kill", "stop", "slow", "disk")
ALL = (*AT_A_MOMENT, "raise")


class Fault(NamedTuple):
    """One fault: when it comes, in seconds since learning began, and which one."""

    at: float
    kind: str
    draw: float  # in [0, 1): which worker, of those that live then


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds that a text like ``kill,stop`` names. Raises UnknownName for one that does not exist."""
    kinds = ALL if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in kinds:
        if kind not in ALL:
            raise UnknownName("fault", kind, ALL, "Several are joined by commas: kill,stop; all: every one.")
    return kinds


def schedule(kinds: Sequence[str], every: float, seconds: float, seed: int) -> list[Fault]:
    """Faults about ``every`` seconds for ``seconds``, their moments and kinds drawn from ``seed``.

    The last comes early enough to see what becomes of it: ``every`` seconds before the end.
    """
    choose, moments = random.Random(seed), [kind for kind in kinds if kind in AT_A_MOMENT]
    faults: list[Fault] = []
    at = 0.0
    while moments:
        at += every * choose.uniform(0.7, 1.3)
        if at > max(seconds - every, 0.0) and (faults or at > seconds):
            break
        faults.append(Fault(at, choose.choice(moments), choose.random()))
    return faults
