"""How far a run is: counters that are saved with it, and the speed that they give."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.envs.guards import Trouble
from weft.runtimes.loop.engine import Report
from weft.telemetry.episodes import EpisodeWindow
from weft.telemetry.ledger import Ledger


@dataclass
class Counters:
    """Counters of one run, for each of its series of episodes: its seeds, or its policies."""

    series: tuple[str, ...] = ("0",)
    learn_steps: int = 0
    env_steps: int = 0  # that environments have made, all seeds together; counted where they are made
    earlier_seconds: float = 0.0  # of training, before this process
    windows: list[EpisodeWindow] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    shares: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)  # the newest metrics
    restarts: int = 0  # of workers
    env_errors: int = 0  # steps and resets of environments that raised, after which they went on
    outside_box: int = 0  # observations outside their Box
    warm_up: int = 1  # learn steps whose speed does not count: compilation, and what workers did meanwhile
    figures: dict[str, float] = field(default_factory=dict)  # what else the engine told last
    streams: dict[str, dict[str, float]] = field(default_factory=dict)  # what passed between workers, as told last

    def __post_init__(self) -> None:
        self.windows = self.windows or [EpisodeWindow() for _ in self.series]
        self._began, self._first = time.perf_counter(), self.learn_steps
        self._steady: tuple[float, int] | None = None  # when the first report came, and the steps until then
        first = (self._began, self.env_steps, self.learn_steps)
        self._taken: deque[tuple[float, int, int]] = deque([first], maxlen=16)

    @property
    def wall_seconds(self) -> float:
        """Of training in all, compilation included; the time between two processes is not."""
        return self.earlier_seconds + time.perf_counter() - self._began

    @property
    def compile_seconds(self) -> float:
        """From the start of this process's training to its first report."""
        return (self._steady[0] - self._began) if self._steady else 0.0

    @property
    def env_steps_per_second(self) -> float:
        """Since the first report, which compilation delays; over all where there was but one."""
        now, steps, _ = self._taken[-1]
        if self._steady is not None and steps > self._steady[1] and now > self._steady[0]:
            return (steps - self._steady[1]) / (now - self._steady[0])
        return self.env_steps / max(self.wall_seconds, 1e-9)

    @property
    def return_mean(self) -> float:
        """Over the last 100 episodes of each seed; NaN before the first."""
        return sum(window.return_mean for window in self.windows) / len(self.windows)

    @property
    def recent_rate(self) -> float:
        """Environment steps per second over the last few reports; 0 before the first."""
        (then, before, _), (now, steps, _) = self._taken[0], self._taken[-1]
        return (steps - before) / (now - then) if now > then else 0.0

    @property
    def seconds_per_learn(self) -> float:
        """Over the last few reports, without compilation; 0 where that is not known yet."""
        (then, _, before), (now, _, learned) = self._taken[0], self._taken[-1]
        return (now - then) / (learned - before) if self._steady and learned > before else 0.0

    def take(self, report: Report) -> None:
        """Count a report."""
        now = time.perf_counter()
        self.learn_steps += report.learn_steps
        self.env_steps = report.env_steps if report.samples is not None else self.env_steps + report.env_steps
        if report.samples is None:  # in one process nothing is ever on its way
            self.ledger.produce(max(report.produced, report.trained))
            self.ledger.train(report.trained)
            self.ledger.drop("filtered", max(0, report.produced - report.trained))
        else:
            self.ledger = report.samples
        self.figures, self.restarts = report.figures, self.restarts + report.restarts
        self.count(report.troubles)
        self.streams = report.streams or self.streams
        for window, episodes in zip(self.windows, report.episodes, strict=True):
            for episode in episodes:
                window.add(*episode)
        for stage, seconds in report.shares.items():
            self.shares[stage] = self.shares.get(stage, 0.0) + seconds
        self.latest = {name: float(values[-1].mean()) for name, values in report.metrics.items()}
        if self._steady is None and self.learn_steps >= self._first + self.warm_up:
            self._steady = (now, self.env_steps)
            self._taken.clear()  # what came before was mostly compilation
        self._taken.append((now, self.env_steps, self.learn_steps))

    def leave_out(self, seconds: float) -> None:
        """The last ``seconds`` were not training's: they count for no rate, only for the time that passed."""
        self._taken = deque(((at + seconds, *made) for at, *made in self._taken), maxlen=16)  # type: ignore[misc]
        if self._steady is not None:
            self._steady = (self._steady[0] + seconds, self._steady[1])

    def count(self, troubles: Iterable[Trouble]) -> None:
        """Count what environments met."""
        for trouble in troubles:
            self.env_errors += trouble.errors
            self.outside_box += trouble.outside

    def record(self) -> dict[str, Any]:
        """What is shown and logged."""
        window = self.windows[0]
        record: dict[str, Any] = {
            "env_steps": self.env_steps,
            "learn_steps": self.learn_steps,
            "wall_seconds": round(self.wall_seconds, 3),
            "env_steps_per_second": round(self.recent_rate, 1),
            "episodes": sum(w.total for w in self.windows),
            "return_mean": self.return_mean,
            "episode_length_mean": window.length_mean,
        }
        record |= {f"loss/{name}" if name != "loss" else "loss/total": value for name, value in self.latest.items()}
        total = sum(self.shares.values())
        if total > 0:
            record |= {f"time/{stage}": seconds / total for stage, seconds in self.shares.items()}
        counted = {"env_errors": self.env_errors, "observations_outside_box": self.outside_box}
        record |= {name: count for name, count in counted.items() if count}
        if len(self.series) > 1:
            record |= {f"return_mean/{k}": w.return_mean for k, w in zip(self.series, self.windows, strict=True)}
        return record | self.figures

    def go_back(self, document: dict[str, Any] | None) -> None:
        """Count from a checkpoint again, or from nothing; the time that was spent since stays spent."""
        self.learn_steps = document["learn_steps"] if document else 0
        self.env_steps = document["env_steps"] if document else 0
        if document:
            self.windows = [EpisodeWindow.from_json(window) for window in document["windows"]]
        else:
            self.windows = [EpisodeWindow() for _ in self.series]
        self._steady, self._first = None, self.learn_steps
        self._taken = deque([(time.perf_counter(), self.env_steps, self.learn_steps)], maxlen=16)

    def to_document(self) -> dict[str, Any]:
        """For a checkpoint; ``from_document`` brings it back."""
        return {
            "learn_steps": self.learn_steps,
            "env_steps": self.env_steps,
            "wall_seconds": self.wall_seconds,
            "windows": [window.to_json() for window in self.windows],
            "ledger": self.ledger.to_json(),
            "restarts": self.restarts,
            "env_errors": self.env_errors,
            "outside_box": self.outside_box,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], series: tuple[str, ...], warm_up: int = 1) -> Counters:
        """Go on counting where a checkpoint left off."""
        windows = [EpisodeWindow.from_json(window) for window in document["windows"]]
        return cls(
            series=series,
            learn_steps=document["learn_steps"],
            env_steps=document["env_steps"],
            earlier_seconds=document["wall_seconds"],
            windows=windows,
            ledger=Ledger.from_json(document["ledger"]),
            restarts=document.get("restarts", 0),
            env_errors=document.get("env_errors", 0),
            outside_box=document.get("outside_box", 0),
            warm_up=warm_up,
        )
