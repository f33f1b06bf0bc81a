"""When a run may end before its last step: functions of a record, for ``weft.train(stop_when=...)``.

Any function of a record will do: it is given a dict of numbers by name, as ``metrics.jsonl`` has them, and says whether
to stop; text says why as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from weft.telemetry.sink import Record

StopWhen: TypeAlias = Callable[[Record], Any]

ENOUGH = 100
"""Episodes that must have ended before a mean return of training says anything: it is over as many."""


def reached(value: float, of: str = "return_mean", *, episodes: int = ENOUGH) -> StopWhen:
    """Stop once a figure of the record is at least ``value``.

    ``of`` is the mean return in training unless named; ``eval/return_mean`` is that of evaluation (``eval_every``). At
    least ``episodes`` episodes must have ended in training before.
    """

    def stop(record: Record) -> str:
        figure = record.get(of, math.nan)
        enough = of.startswith("eval/") or float(record.get("episodes", 0)) >= episodes
        return f"{of} reached {value:g}" if enough and float(figure) >= value else ""

    return stop


def no_progress(env_steps: int, of: str = "return_mean") -> StopWhen:
    """Stop once a figure of the record has had no new highest value for so many env steps."""
    best, at = -math.inf, 0

    def stop(record: Record) -> str:
        nonlocal best, at
        now, figure = int(record["env_steps"]), float(record.get(of, math.nan))
        if figure > best:
            best, at = figure, now
        return f"no progress of {of} for {now - at:,} env steps" if best > -math.inf and now - at >= env_steps else ""

    return stop


class Hooks:
    """What the caller of ``weft.train`` wants with each record: a sink. ``stopped`` says why the run is to end."""

    every = 0.0

    def __init__(self, on_record: Callable[[Record], Any] | None = None, *stops: StopWhen | None) -> None:
        self._on_record, self._stops = on_record, [stop for stop in stops if stop is not None]
        self.stopped = ""

    def write(self, record: Record, env_steps: int) -> None:
        """Call the functions. What they raise ends the run; an OSError too, which of another sink would not."""
        told = {**record, "env_steps": env_steps}
        try:
            if self._on_record is not None:
                self._on_record(told)
            for stop in self._stops:
                if not self.stopped and (why := stop(told)):
                    self.stopped = why if isinstance(why, str) else "as stop_when said"
        except OSError as error:
            raise RuntimeError(f"on_record or stop_when raised {type(error).__name__}: {error}") from error

    def summary(self, how: str) -> dict[str, str]:
        """What the run's summary says of it, where the run ended as ``how``."""
        return {"stopped": self.stopped} if how == "stopped" else {}

    def close(self) -> None:
        """Nothing is held."""
