"""Screens without a terminal: plain lines for logs and pipes, and the quiet one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from weft.telemetry.bottleneck import bottleneck
from weft.telemetry.evaluated import has_evaluation, in_words
from weft.telemetry.figures import duration, figure, percent
from weft.telemetry.progress import Progress
from weft.telemetry.sink import Record


class Plain:
    """One line every few seconds; the bottleneck only when it becomes another. ``stream`` is stderr by default."""

    def __init__(
        self,
        total_steps: int | None = None,
        *,
        every: float = 5.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self._stream = stream
        self._progress = Progress(total_steps, clock)
        self._bound = ""

    def open(self) -> None:
        """Nothing to take hold of."""

    def write(self, record: Record, env_steps: int) -> None:
        """Print a line. Raises OSError where nobody reads any more."""
        self._progress.follow(record, env_steps)
        parts = [f"{env_steps:,} steps"]
        if self._progress.total:
            parts[0] = f"{percent(self._progress.share):>4}  {env_steps:>{len(f'{self._progress.total:,}')},} steps"
        if "return_mean" in record:
            parts.append(f"return {figure(record['return_mean'])}")
        parts.append(f"{figure(self._progress.env_steps_per_second)} steps/s")
        parts += [f"{n.removeprefix('loss/')} {figure(v)}" for n, v in record.items() if n.startswith("loss/")][:4]
        if "lag" in record:
            parts.append(f"lag {figure(record['lag'])}")
        if self._progress.total and self._progress.share < 1:
            parts.append(f"{duration(self._progress.seconds_left)} left")
        self._print("  ".join(parts))
        if has_evaluation(record):
            self._print(f"      evaluation: {in_words(record)}")
        bound = bottleneck(record)
        if bound and bound.split(":")[0] != self._bound:
            self._bound = bound.split(":")[0]
            self._print(f"      {bound}")

    def note(self, text: str) -> None:
        """Print the text."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Print the text, marked as a warning."""
        self._print(f"warning: {text}")

    def close(self) -> None:
        """Nothing to let go of."""

    def _print(self, text: str) -> None:
        # stderr is looked up each time, as print does: tests and users replace it.
        print(text, file=self._stream if self._stream is not None else sys.stderr, flush=True)


class Quiet(Plain):
    """Says nothing but warnings: weights or data that were lost are never hidden."""

    def write(self, record: Record, env_steps: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
