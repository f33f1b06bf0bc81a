"""Finished episodes on their way to the launcher: those of an unroll together, before the unroll itself is sent.

So when the launcher hears that an unroll was learned from, it has heard of its episodes, or can at once. In lockstep a
lane tells of every unroll, also where no episode ended: the launcher then knows how far all lanes are
(``episode_order``).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.runtimes.hosted.unroll_buffer import Ended
from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.episode_order import Told
from weft.runtimes.workers.layout.blueprint import Lane


class EpisodeReports:
    """Tells the launcher of finished episodes. ``acts`` are all of the run, in order; ``always``: of none too."""

    def __init__(self, link: Link, acts: Sequence[str], *, always: bool) -> None:
        self._link, self._acts, self._always = link, list(acts), always

    def tell(self, act: str, lane: Lane, until: int, episodes: Sequence[Told]) -> None:
        """Send those of an unroll after which ``until`` steps were made; blocks where the launcher is far behind."""
        if episodes or self._always:
            body = {"series": self._acts.index(act), "lane": lane.index, "until": until, "episodes": episodes}
            self._link.say("episodes", body)

    def tell_ended(self, act: str, lane: Lane, until: int, length: int, ended: Sequence[Ended]) -> None:
        """As ``tell``, of episodes that host code counted one by one in an unroll of ``length`` steps."""
        begun = until - length
        told = [Told(begun + e.step, lane.first + e.row, 1, e.episode_return, e.length) for e in ended]
        self.tell(act, lane, until, told)
