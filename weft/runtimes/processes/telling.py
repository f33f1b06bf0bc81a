"""Finished episodes on their way to the launcher: seldom, and several at a time."""

from __future__ import annotations

import time

from weft.runtimes.processes.link import Link

EVERY_SECONDS = 0.1


class Telling:
    """Collects episodes and tells the launcher of them, not too often."""

    def __init__(self, link: Link) -> None:
        self._link, self._told = link, time.monotonic()
        self.episodes: list[list[tuple[int, float, int]]] = [[]]  # as UnrollBuffer.count_episodes appends them

    def tell(self) -> None:
        """Say what there is to say, if it is time."""
        if self.episodes[0] and time.monotonic() - self._told > EVERY_SECONDS:
            self._link.say("episodes", {"episodes": self.episodes[0]})
            self.episodes, self._told = [[]], time.monotonic()
