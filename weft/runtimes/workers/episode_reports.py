"""Finished episodes on their way to the launcher: those of an unroll together, before the unroll itself is sent.

So whoever has heard that an unroll was learned from has heard of its episodes too, or can hear of them at once.
"""

from __future__ import annotations

from weft.runtimes.workers.control.link import Link


class EpisodeReports:
    """Collects episodes and tells the launcher of them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.episodes: list[list[tuple[int, float, int]]] = [[]]  # as UnrollBuffer.count_episodes appends them

    def tell(self) -> None:
        """Say what there is to say; blocks only where the launcher is far behind with listening."""
        if self.episodes[0]:
            self._link.say("episodes", {"episodes": self.episodes[0]})
            self.episodes = [[]]
