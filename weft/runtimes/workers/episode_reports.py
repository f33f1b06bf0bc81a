"""Finished episodes on their way to the launcher: those of an unroll together, before the unroll itself is sent.

So what has heard that an unroll was learned from has heard of its episodes too, or can hear of them at once.
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
        """Say what there is to say; blocks only where the launcher is far behind with listening."""
        for index, (name, episodes) in enumerate(self._episodes.items()):
            if episodes:
                self._link.say("episodes", {"series": index, "episodes": episodes})
                self._episodes[name] = []
