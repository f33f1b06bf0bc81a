"""How far a run is, and how long it will take."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.telemetry.sink import Record


class Progress:
    """Follows env steps towards ``total`` (None where the run has no end); ``clock`` gives seconds and never jumps."""

    def __init__(self, total: int | None, clock: Callable[[], float]) -> None:
        self.total = total
        self.env_steps = 0
        self._rate = math.nan  # env steps per second
        self._clock = clock
        self._began: tuple[float, int] | None = None

    def follow(self, record: Record, env_steps: int) -> None:
        """Take what a record says of the speed; without, it is measured from the first record on."""
        now = self._clock()
        if self._began is None:
            self._began = now, env_steps
        began, first = self._began
        measured = (env_steps - first) / (now - began) if now > began else math.nan
        told = record.get("env_steps_per_second", math.nan)
        self._rate = measured if isinstance(told, str) or not told > 0 else float(told)
        self.env_steps = env_steps

    @property
    def share(self) -> float:
        """What part is finished, 0 to 1; NaN where there is no end."""
        return min(1.0, self.env_steps / self.total) if self.total else math.nan

    @property
    def env_steps_per_second(self) -> float:
        """The speed; NaN before two records were seen."""
        return self._rate

    @property
    def seconds_left(self) -> float:
        """How long the rest will take at this speed; NaN where that is not known."""
        if not self.total or not self._rate > 0:
            return math.nan
        return max(0, self.total - self.env_steps) / self._rate
