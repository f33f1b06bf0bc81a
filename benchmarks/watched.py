"""Training beside an open dashboard: the page in Chromium, opened and closed in turns within one run.

``python -m benchmarks.watched [--plan PLAN] [--pairs N] [--seconds S]``, with Debian's ``chromium`` and
``chromium-driver``. The folder has 20 more runs of 2,000 records. The page shows the dataflow in one pair and the
curves of four runs in the next. Chromium runs all the time; where the page is closed it shows an empty one. Rates are
by ``live.json``.

On a machine with other load a rate says little about a hundredth. So two more figures are there: steps for each second
of processor time that the run used, which other load changes less, and the processor time of the browser and the
server.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.table import grid, number
from benchmarks.worker import ROOT, variables

sys.path.append(str(ROOT / "tests" / "dashboard"))

from browser import Browser, missing, wait
from folders import make_run

OTHERS = 20
RECORDS = 2000
SETTLE_SECONDS = 1.0  # after the page was opened or closed
VIEWS = ("dataflow", "curves")
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Window:
    """What was counted over a while; processor times in seconds."""

    seconds: float
    env_steps: int
    run: float
    browser: float
    server: float

    @property
    def rate(self) -> float:
        """Env steps a second."""
        return self.env_steps / self.seconds

    @property
    def for_processor(self) -> float:
        """Env steps for each second of processor time of the run and its workers."""
        return self.env_steps / self.run


@dataclass(frozen=True)
class Pair:
    """The page open and closed, one right after the other."""

    view: str
    watched: Window
    alone: Window


def processor_seconds(root: int) -> float:
    """Processor time that a process and its descendants have used, those that ended and were waited for included."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        pid = int(folder.name)
        parents[pid], used[pid] = int(fields[1]), sum(int(field) for field in fields[11:15]) / TICK
    total, family = 0.0, [root]
    while family:
        pid = family.pop()
        total += used.get(pid, 0.0)
        family += [child for child, parent in parents.items() if parent == pid]
    return total


@dataclass(frozen=True)
class Bench:
    """A run that trains, the server of the page, and a browser."""

    live: Path
    run: int
    server: int
    browser: Browser
    url: str

    def page(self, view: str, ids: Sequence[str]) -> None:
        """Show a view of the run, with the others ticked."""
        self.browser.open("about:blank")  # a change behind the # alone loads no page
        self.browser.open(f"{self.url}/#run={ids[0]}&tab={view}&with={','.join(ids[1:4])}")
        shown = {
            "dataflow": "return document.querySelector('.flowchart') !== null",
            "curves": "return document.querySelectorAll('.charts canvas').length >= 2",
        }
        wait(lambda: self.browser.run(shown[view]), 30, view)
        wait(lambda: self.browser.text("#link span") == "live", 20, "connection")

    def window(self, seconds: float) -> Window:
        """Count for about ``seconds``, from one writing of ``live.json`` to another; blocks."""
        time.sleep(SETTLE_SECONDS)
        began, ended = self._look(0.0), None
        while ended is None or ended[0] < began[0] + seconds:
            ended = self._look(began[0] if ended is None else ended[0])
        at, steps, run, browser, server = (b - a for a, b in zip(began, ended, strict=True))
        return Window(at, int(steps), run, browser, server)

    def _look(self, after: float) -> tuple[float, float, float, float, float]:
        """When ``live.json`` is new: its time, its env steps, processor times."""
        before = after if after else json.loads(self.live.read_text())["at"]
        while True:
            saved = json.loads(self.live.read_text())
            if saved["at"] > before:
                times = [processor_seconds(pid) for pid in (self.run, self.browser.pid, self.server)]
                return (saved["at"], saved["env_steps"], times[0], times[1], times[2])
            time.sleep(0.02)


@contextmanager
def process(arguments: Sequence[str], **more: int) -> Iterator[subprocess.Popen[str]]:
    """``python -m weft`` with these arguments while inside; then interrupted, and waited for."""
    command = [sys.executable, "-m", "weft", *arguments]
    started = subprocess.Popen(command, cwd=ROOT, env=variables(ROOT), text=True, process_group=0, **more)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        if started.stdout is not None:
            started.stdout.close()


@contextmanager
def bench(plan: str, root: Path) -> Iterator[tuple[Bench, list[str]]]:
    """All three at work, and the ids of the runs, the one that trains first."""
    for k in range(OTHERS):
        make_run(root, f"other-{k:02}", rows=RECORDS, config={"seed": k})
    train = ["train", "ppo", "CartPole-v1", "--plan", plan, "--steps", "1_000_000_000", "--run", "watched"]
    live = root / "watched" / "live.json"
    with (
        process([*train, "--root", str(root), "--quiet", "--no-tensorboard"]) as run,
        process(["watch", "--root", str(root), "--port", "0"], stdout=subprocess.PIPE) as server,
        Browser() as browser,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        wait(lambda: live.exists() and json.loads(live.read_text())["env_steps"], 120, "run that trains")
        browser.open(url)
        wait(lambda: browser.text("#state") == "training", 60, "run on the page")
        found = browser.run("return window.page.runs.map((r) => [r.name, r.id])")
        ids = [one for name, one in sorted(found, key=lambda row: row[0] != "watched")]
        time.sleep(5.0)  # everything is compiled, and queues are as full as they get
        yield Bench(live, run.pid, server.pid, browser, url.partition("?")[0].rstrip("/")), ids


def measure(plan: str, pairs: int, seconds: float) -> list[Pair]:
    """Open and closed in turns, the other first in every second pair."""
    found = []
    with tempfile.TemporaryDirectory() as folder, bench(plan, Path(folder)) as (on, ids):
        for k in range(pairs):
            view = VIEWS[k % len(VIEWS)]
            windows: dict[bool, Window] = {}
            for watched in ((True, False), (False, True))[k // len(VIEWS) % 2]:
                if watched:
                    on.page(view, ids)
                else:
                    on.browser.open("about:blank")
                windows[watched] = on.window(seconds)
            found.append(Pair(view, windows[True], windows[False]))
            one = found[-1]
            print(
                f"{k + 1:3} {view:9} {one.watched.rate / one.alone.rate:.3f}, for its processor time "
                f"{one.watched.for_processor / one.alone.for_processor:.3f}, load {os.getloadavg()[0]:.1f}",
                file=sys.stderr,
                flush=True,
            )
    return found


def row(name: str, ratios: Sequence[float]) -> list[str]:
    """Median, quartiles, the mean with its standard error (of logarithms), and the extremes."""
    logs = [math.log(ratio) for ratio in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else float("nan")
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return [
        name,
        f"{statistics.median(ratios):.3f}",
        f"{low:.3f} – {high:.3f}",
        f"{math.exp(statistics.mean(logs)):.3f} ± {error:.3f}",
        f"{min(ratios):.3f} – {max(ratios):.3f}",
    ]


def table(pairs: Sequence[Pair]) -> str:
    """Ratios of open to closed, and what browser and server used."""
    rows = []
    for view in (None, *VIEWS):
        chosen = [pair for pair in pairs if view in (None, pair.view)]
        if chosen:
            name = view or "both views"
            rows.append(row(f"{name}: env steps/s", [p.watched.rate / p.alone.rate for p in chosen]))
            ratios = [p.watched.for_processor / p.alone.for_processor for p in chosen]
            rows.append(row(f"{name}: env steps by processor time", ratios))
    shares = []
    for view in VIEWS:
        for what in ("browser", "server"):
            windows = [pair.watched for pair in pairs if pair.view == view]
            if windows:
                used = [getattr(window, what) / window.seconds for window in windows]
                shares.append([f"{view}: {what}", number(statistics.median(used)), number(max(used))])
    ratios = grid(["open / closed", "median", "quartiles", "mean", "min – max"], rows)
    return "\n".join([ratios, "", grid(["part of one core while open", "median", "max"], shares)])


def main(arguments: list[str]) -> int:
    """Measure, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watched", description=__doc__.splitlines()[0])
    parser.add_argument("--plan", default="env+act+learn")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one window")
    flags = parser.parse_args(arguments)
    if lacks := missing():
        parser.error(lacks)
    print(machine.describe(), flush=True)
    pairs = measure(flags.plan, flags.pairs, flags.seconds)
    print(f"{flags.plan}, {len(pairs)} pairs, load {os.getloadavg()[0]:.1f}\n\n{table(pairs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
