"""Finished episodes on their way to the launcher: those of an unroll together, before the unroll itself is sent.

So when the launcher hears that an unroll was learned from, it has heard of its episodes, or can at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.runtimes.workers.control.link import Link

Episode = tuple[int, float, int]


class EpisodeReports:
    """Collects episodes by act and tells the launcher of them. ``acts`` are all of the run, in order."""

    def __init__(self, link: Link, acts: Sequence[str]) -> None:
        self._link = link
        self._episodes: dict[str, list[Episode]] = {name: [] for name in acts}

    def of(self, act: str) -> list[Episode]:
        """Where an act's finished episodes are appended."""
        return self._episodes[act]

    def tell(self) -> None:
        """Send what was collected; blocks only where the launcher is far behind."""
        for index, (name, episodes) in enumerate(self._episodes.items()):
            if episodes:
                self._link.say("episodes", {"series": index, "episodes": episodes})
                self._episodes[name] = []
