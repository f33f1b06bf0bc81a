"""How many batches a store may draw for what it has kept. Pure.

A whole unroll, of all environments of the run, is followed by ``draws`` batches. A store in a worker may get it in
``parts``, one for each lane: each of them allows its part of the batches, in whole ones, so that over all of them the
ratio is kept exactly. What was kept while the store filled allows none.
"""

from __future__ import annotations


class StorePace:
    """Counts messages kept and batches drawn, from when it was made."""

    def __init__(self, draws: int, parts: int, filling: int) -> None:
        self.draws, self.parts, self.filling = draws, parts, filling
        self.kept = self.drawn = 0

    @property
    def allowed(self) -> int:
        """Batches that may have been drawn by now: what was kept last is released when they have been learned from."""
        return max(0, self.kept - self.filling) * self.draws // self.parts

    def may_draw(self, count: int) -> bool:
        """Whether so many more are allowed."""
        return self.drawn + count <= self.allowed
