"""When to act: at once, or when more lanes are ready.

A batch costs the host a fixed time and a little for each lane. Whatever is ready could be taken at once, and where the
host has time to spare that is best: nobody waits. Where it has not, small batches keep it busy and lanes waiting. So
the size that is waited for grows while the side is busy, and shrinks while it is not; half of the lanes at most, since
the environments of the other half step meanwhile.
"""

from __future__ import annotations

import time

LOOK_SECONDS = 0.05
"""From one look at how busy the side is to the next."""
BUSY, IDLE = 0.9, 0.75
"""Above the first share of its time at work it waits for larger batches, below the second for smaller ones."""
PATIENCE_SECONDS = 0.002
"""How long the first that is ready waits for others at most: some of them may be stuck."""


class Pace:
    """Adapts to how busy a side is, between one lane and half of them; without ``waits`` it never waits."""

    def __init__(self, lanes: int, *, waits: bool) -> None:
        self._most = max(1, lanes // 2) if waits else 1
        self.enough = 1  # lanes that are waited for
        self._looked, self._busy = time.perf_counter(), 0
        self._waits_since = 0.0  # when the first that is ready became so; 0: none is

    def patience(self, ready: int) -> float:
        """Seconds to wait for more than the ``ready`` lanes; 0: act now."""
        if ready >= self.enough:
            self._waits_since = 0.0
            return 0.0
        now = time.perf_counter()
        self._waits_since = self._waits_since or now
        left = self._waits_since + PATIENCE_SECONDS - now
        if left <= 0.0:
            self._waits_since = 0.0
        return max(0.0, left)

    def look(self, busy_ns: int) -> None:
        """Adapt; ``busy_ns`` is the time that the side has worked so far. Cheap: to be called for every batch."""
        now = time.perf_counter()
        if self._most == 1 or now - self._looked < LOOK_SECONDS:
            return
        share = (busy_ns - self._busy) * 1e-9 / (now - self._looked)
        self._looked, self._busy = now, busy_ns
        if share > BUSY:
            self.enough = min(self._most, self.enough + 1)
        elif share < IDLE:
            self.enough = max(1, self.enough - 1)
