"""Returns and lengths of the most recent episodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple


class EpisodeSlice(NamedTuple):
    """Episodes that ended in the same stretch of time, added up."""

    episodes: int
    return_sum: float
    length_sum: int  # in env steps


class EpisodeWindow:
    """Mean return and length over the most recent episodes, fed in time order.

    A compiled program reports sums over many episodes at once, so the window is made of slices: the fewest of the
    latest that hold at least ``size`` episodes. Fed one episode at a time, it is exactly the last ``size``.
    """

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self.total = 0
        """Episodes since the run began."""
        self._slices: deque[EpisodeSlice] = deque()
        self._in_window = 0

    def add(self, count: int, return_sum: float, length_sum: int) -> None:
        """Take a slice of ``count`` episodes; one of none changes nothing."""
        if count <= 0:
            return
        self._slices.append(EpisodeSlice(int(count), float(return_sum), int(length_sum)))
        self.total += int(count)
        self._in_window += int(count)
        while self._in_window - self._slices[0].episodes >= self.size:
            self._in_window -= self._slices.popleft().episodes

    def add_episode(self, episode_return: float, length: int) -> None:
        """Take one episode."""
        self.add(1, episode_return, length)

    @property
    def count(self) -> int:
        """Episodes in the window."""
        return self._in_window

    @property
    def return_mean(self) -> float:
        """Mean return of the window; NaN before the first episode ended."""
        # Summed anew each time: a running sum would drift, and differ after a resume.
        return self._mean(math.fsum(s.return_sum for s in self._slices))

    @property
    def length_mean(self) -> float:
        """Mean length of the window, in env steps; NaN before the first episode ended."""
        return self._mean(sum(s.length_sum for s in self._slices))

    def record(self) -> dict[str, float | int]:
        """The window as part of a record: ``episodes`` since the run began, and the window's means."""
        return {"episodes": self.total, "return_mean": self.return_mean, "episode_length_mean": self.length_mean}

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON can hold it, for a checkpoint."""
        return {"size": self.size, "total": self.total, "slices": [list(s) for s in self._slices]}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> EpisodeWindow:
        """The window that ``to_json`` gave."""
        window = cls(saved["size"])
        for count, return_sum, length_sum in saved["slices"]:
            window.add(count, return_sum, length_sum)
        window.total = saved["total"]
        return window

    def _mean(self, total: float) -> float:
        return total / self._in_window if self._in_window else math.nan
