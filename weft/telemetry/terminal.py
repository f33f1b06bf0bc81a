"""The live table: one screen that tells how a run goes and what holds it back.

Drawn only when a record comes and at most four times a second, by the thread that writes; there is no other thread,
so a run that computes is never interrupted for it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from weft.telemetry.bottleneck import bottleneck, busy, shares
from weft.telemetry.evaluated import has_evaluation, in_words
from weft.telemetry.figures import duration, figure, percent, sparkline
from weft.telemetry.progress import Progress
from weft.telemetry.sink import Record

_STAGE_COLOURS = {
    "env": "green",
    "act": "cyan",
    "env+act": "cyan",
    "learn": "magenta",
    "grad": "magenta",
    "apply": "bright_magenta",
    "copy": "yellow",
    "wait": "red",
    "replay": "blue",
}
_KNOWN = {
    "return_mean",
    "episode_length_mean",
    "episodes",
    "env_steps",
    "learn_steps",
    "env_steps_per_second",
    "lag",
    "lag_max",
    "load",
    "saved_learn_steps",
    "wall_seconds",
}
_GROUPS = ("eval/", "loss/", "time/", "busy/", "queue/", "lag/", "return_mean/")
_HISTORY = 512  # return means remembered for the curve
_LAGS = 6  # lags of which each has its part shown


class Terminal:
    """A live table on stderr: progress and time left, return, speed, losses, stages, lag, queues, the bottleneck and a
    hint.

    Between ``open`` and ``close`` it holds the terminal; what others print meanwhile appears above the table.
    ``close`` leaves the last table standing and gives the terminal back, also on the way out of an exception.
    """

    def __init__(
        self,
        title: str = "",
        total_steps: int | None = None,
        *,
        every: float = 0.5,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = max(every, 0.25)
        self._console = console or Console(stderr=True)
        self.title = title
        self._progress = Progress(total_steps, clock)
        self._returns: list[float] = []
        self._evaluated: Record = {}  # the newest record that has an evaluation
        self._live: Live | None = None

    def open(self) -> None:
        """Show the table, empty as yet."""
        if self._live is None:
            # Where stdout is a pipe it is the user's, and must not be drawn into the table.
            self._live = Live(
                self._draw({}),
                console=self._console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=True,
            )
            self._live.start(refresh=True)
            self._console.show_cursor(True)  # hidden, it would stay so after a kill -9

    def write(self, record: Record, env_steps: int) -> None:
        """Draw the table anew."""
        self._progress.follow(record, env_steps)
        self._evaluated = record if has_evaluation(record) else self._evaluated
        latest = record.get("return_mean", math.nan)
        if not isinstance(latest, str) and math.isfinite(latest):
            self._returns.append(float(latest))
            if len(self._returns) > _HISTORY:
                self._returns = self._returns[::2]  # half the points, the same curve
        if self._live is not None:
            self._live.update(self._draw(record), refresh=True)

    def note(self, text: str) -> None:
        """Print the text above the table."""
        self._console.print(Text(text), highlight=False)

    def warn(self, text: str) -> None:
        """Print the text above the table, marked as a warning."""
        self._console.print(Text.assemble(("warning: ", "bold yellow"), text), highlight=False)

    def close(self) -> None:
        """Leave the table as it is, and the terminal as it was."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _draw(self, record: Record) -> RenderableType:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column()
        for name, text in self._rows(record):
            rows.add_row(name, text)
        parts: list[RenderableType] = [self._bar(), rows]
        if self.title:
            parts.insert(0, Text(self.title, style="bold", no_wrap=True, overflow="ellipsis"))
        hint = bottleneck(record)
        if hint:
            bound, _, advice = hint.partition(":")
            parts.append(Text.assemble((bound + ":", "bold yellow"), advice))
        return Group(*parts)

    def _bar(self) -> RenderableType:
        steps, total = self._progress.env_steps, self._progress.total
        if not total:
            return Text(f"{steps:,} steps")
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=total, completed=min(steps, total), width=max(10, min(40, self._console.width - 44))),
            Text(percent(self._progress.share), style="bold"),
            Text(f"{steps:,} / {total:,} steps"),
            Text(
                f"{duration(self._progress.seconds_left)} left" if self._progress.share < 1 else "finished", style="dim"
            ),
        )
        return line

    def _rows(self, record: Record) -> list[tuple[str, Text]]:
        returns = _pairs(record, {"return_mean": "", "episode_length_mean": "length", "episodes": "episodes"})
        if "return_mean" in record:
            returns.append("   " + sparkline(self._returns[:: max(1, len(self._returns) // 32)], 40), "green")
        speed = (
            Text(f"{figure(self._progress.env_steps_per_second)} steps/s", style="bold")
            if record
            else Text("starting …")
        )
        speed.append_text(_after(_pairs(record, {"learn_steps": "learn steps"}, plain=True)))
        seeds = [figure(value) for name, value in record.items() if name.startswith("return_mean/")]
        more_seeds = f"  and {len(seeds) - 12} more" if len(seeds) > 12 else ""
        rows = [("return", returns), ("evaluation", Text(in_words(self._evaluated)))]
        rows += [("by seed", Text("  ".join(seeds[:12]) + more_seeds)), ("speed", speed)]
        losses = {name: name.removeprefix("loss/") for name in record if name.startswith("loss/")}
        rows.append(("loss", _pairs(record, losses, plain=True)))
        # In workers stages run side by side: what part of its own time each works says more than shares of a sum.
        rows.append(("busy", _bars(busy(record))) if busy(record) else ("time", _bars(shares(record))))
        rows.append(("lag", _lags(record)))
        fills = {name: float(v) for name, v in record.items() if name.startswith("queue/") and not isinstance(v, str)}
        rows.append(("queues", Text("   ".join(f"{n.removeprefix('queue/')} {percent(v)}" for n, v in fills.items()))))
        others = {n: n for n in record if n not in _KNOWN and not n.startswith(_GROUPS)}
        rows.append(("more", _pairs(record, dict(list(others.items())[:8]), plain=True)))
        return [(name, text) for name, text in rows if text.plain.strip()]


def _pairs(record: Record, names: dict[str, str], *, plain: bool = False) -> Text:
    """``label figure`` for those of ``names`` (name to label) that the record has, side by side."""
    text = Text()
    for name, label in names.items():
        if name in record:
            text.append("   " if text else "")
            text.append(f"{label} " if label else "", "dim")
            text.append(figure(record[name]), "" if plain or label else "bold")
    return text


def _after(text: Text) -> Text:
    return Text("   ").append_text(text) if text else text


def _bars(parts: dict[str, float]) -> Text:
    """Stages with their parts of one, each with a bar of its length in its colour."""
    text = Text()
    for stage, share in parts.items():
        text.append("   " if text else "")
        text.append(f"{stage} ", "dim")
        text.append(f"{percent(share)} ")
        text.append("█" * max(1, round(share * 16)) if share > 0 else "", _STAGE_COLOURS.get(stage, "white"))
    return text


def _lags(record: Record) -> Text:
    """How many versions behind the params were that made what was trained on: mean, most, and a histogram."""
    if "lag" not in record:
        return Text()
    text = Text.assemble(("mean ", "dim"), figure(record["lag"]))
    if not isinstance(most := record.get("lag_max", "–"), str):
        text.append("   most ", "dim").append(f"{most:.0f}")
    lags = sorted((int(name[4:]), name) for name in record if name.startswith("lag/") and name[4:].isdigit())
    parts = [(lag, float(value)) for lag, name in lags if not isinstance(value := record[name], str)]
    for lag, part in parts[:_LAGS]:
        text.append(f"   {lag}: ", "dim").append(percent(part))
        if part >= 1 / 16:
            text.append(" " + "█" * max(1, round(part * 8)), "blue")
    if len(parts) > _LAGS:
        text.append(f"   and {len(parts) - _LAGS} more", "dim")
    return text
