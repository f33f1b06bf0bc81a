"""Finished episodes as lanes tell of them, put into the order in which one process counts them.

The mean return is over the last episodes, so it depends on their order. Lanes tell in any order; in lockstep all of
them make the same steps, and the order is by step, then by environment. An episode is given once every lane has told of
its step. With bounded lag there is no such order, and episodes are given as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from weft.runtimes.loop.engine import Episode


class Told(NamedTuple):
    """Episodes of one lane that ended in the same step."""

    step: int  # of each environment, from 0
    environment: int  # in the run; the lane's first where several are added up
    episodes: int
    return_sum: float
    length_sum: int


class EpisodeOrder:
    """Collects what ``lanes`` lanes tell of each of ``series`` series of episodes.

    ``in_order`` gives the order of one process; ``by_step`` adds up what ended in the same step, as a compiled rollout
    does.
    """

    def __init__(self, series: int, lanes: int, *, in_order: bool, by_step: bool) -> None:
        self._in_order, self._by_step = in_order, by_step
        self._waiting: list[list[Told]] = [[] for _ in range(series)]
        self._until = [[0] * lanes for _ in range(series)]

    def take(self, body: Mapping[str, Any]) -> None:
        """A lane has told of an unroll: ``series``, ``lane``, the steps ``until`` its end, ``episodes``."""
        series = body["series"]
        self._waiting[series] += [Told(*episode) for episode in body["episodes"]]
        self._until[series][body["lane"]] = body["until"]

    def give(self) -> list[list[Episode]]:
        """The episodes of each series that were not given yet and that nothing can come before."""
        return [self._give(series) for series in range(len(self._waiting))]

    def _give(self, series: int) -> list[Episode]:
        told = self._waiting[series]
        if not self._in_order:
            self._waiting[series] = []
            return [_episode([one]) for one in told]
        known = min(self._until[series])
        told.sort(key=lambda one: (one.step, one.environment))
        ready = [one for one in told if one.step < known]
        self._waiting[series] = told[len(ready) :]
        if not self._by_step:
            return [_episode([one]) for one in ready]
        return [_episode(same) for _, same in groupby(ready, key=lambda one: one.step)]


def _episode(several: Iterable[Told]) -> Episode:
    several = list(several)
    return (
        sum(one.episodes for one in several),
        sum(one.return_sum for one in several),
        sum(one.length_sum for one in several),
    )
