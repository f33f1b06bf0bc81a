"""One place to write a record to: it goes to every sink, to each at its own rhythm."""

from __future__ import annotations

import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weft.telemetry.plain import Plain, Quiet
from weft.telemetry.sink import Hears, Record, Reopens, Screen, Sink, Titled


@dataclass
class _Feed:
    """A sink with what is due to it."""

    sink: Sink
    wrote_at: float = float("-inf")
    pending: tuple[Record, int] | None = None  # came too soon after the one before
    lost: int = 0  # records since it last worked


class Telemetry:
    """Sends each record to ``sinks`` and to the ``screen``; a context manager that gives the terminal back.

    A sink with a rhythm gets the latest record at most that often, and the last one when closed. A sink in trouble
    (OSError: a full disk, a network that is gone) never stops a run: it is said on the screen once, tried again with
    each record, and said when it works again, with how many records it missed. One thread writes. ``clock`` gives
    seconds and never jumps.
    """

    def __init__(
        self, sinks: Sequence[Sink], screen: Screen | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.screen: Screen = screen or Quiet()
        self._feeds = [_Feed(sink) for sink in (*sinks, self.screen)]
        self._clock = clock

    def write(self, record: Mapping[str, Any], env_steps: int, *, at_once: bool = False) -> None:
        """Send a record; NumPy and JAX scalars become plain numbers, which waits for the device.

        ``at_once``: to every sink, whatever its rhythm, for what is in one record alone.
        """
        plain = {name: _plain(value) for name, value in record.items()}
        now = self._clock()
        for feed in self._feeds:
            feed.pending = plain, env_steps
            if at_once or now - feed.wrote_at >= feed.sink.every:
                feed.wrote_at = now
                self._send(feed)

    def reopen(self, env_steps: int) -> None:
        """Have sinks open their files anew, and take back what was written past ``env_steps``, where they can."""
        for feed in self._feeds:
            feed.pending = None
            if isinstance(feed.sink, Reopens):
                feed.sink.reopen(env_steps)

    def mend(self, env_steps: int) -> None:
        """Have sinks in trouble open their files anew: the folder that they are in may be there again."""
        for feed in self._feeds:
            if feed.lost and isinstance(feed.sink, Reopens):
                feed.sink.reopen(env_steps)

    def note(self, text: str) -> None:
        """Say something in passing, on the screen."""
        self._hear("note", text)
        with suppress(OSError):
            self.screen.note(text)

    def warn(self, text: str) -> None:
        """Say something that must be seen, on the screen, also where the run is quiet."""
        self._hear("warning", text)
        with suppress(OSError):
            self.screen.warn(text)

    def retitle(self, title: str) -> None:
        """Have the screen say something else above, where it says anything there."""
        if isinstance(self.screen, Titled):
            self.screen.title = title

    def close(self) -> None:
        """Write what is pending, then close every sink, the screen last; more than once does no harm."""
        for feed in self._feeds:
            try:
                self._send(feed)
            finally:
                try:
                    feed.sink.close()
                except OSError as error:
                    self.warn(f"{_name(feed.sink)}: {error}")

    def __enter__(self) -> Self:
        with suppress(OSError):
            self.screen.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _hear(self, kind: str, text: str) -> None:
        for feed in self._feeds:
            if isinstance(feed.sink, Hears):
                feed.sink.hear(kind, text)

    def _send(self, feed: _Feed) -> None:
        pending, feed.pending = feed.pending, None
        if pending is None:
            return
        try:
            feed.sink.write(*pending)
        except OSError as error:
            feed.lost += 1
            if feed.lost == 1:
                self.warn(f"{_name(feed.sink)}: {error}. Training goes on; records are lost until it works again.")
        else:
            if feed.lost:
                self.warn(f"{_name(feed.sink)}: works again; records lost: {feed.lost}.")
            feed.lost = 0


def open_telemetry(
    *,
    title: str = "",
    total_steps: int | None = None,
    quiet: bool = False,
    metrics: Path | None = None,
    tensorboard: Path | None = None,
    wandb: str | None = None,
    config: Mapping[str, Any] | None = None,
    resumed_at: int | None = None,
    more: Sequence[Sink] = (),
) -> Telemetry:
    """The telemetry of a run: a live table in a terminal or a notebook, else plain lines, or nothing with ``quiet``.

    ``metrics`` is the JSONL file and ``tensorboard`` the folder to write to, ``wandb`` the W&B project; None leaves
    one out. ``resumed_at`` is the env step that a resumed run starts from, ``more`` are sinks that are open already.
    Use it as a context manager. Raises MissingExtra.
    """
    from weft.telemetry import tensorboard as tensorboard_files
    from weft.telemetry.jsonl import Jsonl

    screen = _screen(title, total_steps, quiet)
    sinks: list[Sink] = []
    if metrics is not None:
        sinks.append(Jsonl(metrics))
    if tensorboard is not None:
        if tensorboard_files.is_available():
            sinks.append(
                tensorboard_files.TensorBoard(tensorboard, None if resumed_at is None else resumed_at + 1, config)
            )
        else:
            screen.note("no TensorBoard files will be written: run  pip install tensorboardX")
    if wandb is not None:
        from weft.telemetry.wandb import Wandb

        folder = metrics.parent if metrics is not None else Path.cwd()
        # The same folder gives the same id, so that a resumed run goes on with its own curves.
        run_id = f"{folder.name}-{zlib.crc32(str(folder.resolve()).encode()):08x}"
        try:
            sinks.append(Wandb(wandb, folder.name, run_id, folder, config or {}))
        except OSError as error:
            screen.warn(f"{error}. Training goes on without it.")
    return Telemetry([*sinks, *more], screen)


def _screen(title: str, total_steps: int | None, quiet: bool) -> Screen:
    if quiet:
        return Quiet()
    if "IPython" in sys.modules:
        from weft.telemetry.notebook import Notebook, in_notebook

        if in_notebook():
            return Notebook(title, total_steps)
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return Plain(total_steps)
    from weft.telemetry.terminal import Terminal

    return Terminal(title, total_steps)


def _plain(value: Any) -> float | int | str:
    """A plain number or text from a Python, NumPy or JAX scalar; NaN from None."""
    if value is None:
        return math.nan
    if type(value) in (float, int, str):
        return value  # type: ignore[no-any-return]
    return value.item() if hasattr(value, "item") else float(value)


def _name(sink: Sink) -> str:
    return type(sink).__name__
