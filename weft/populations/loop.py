"""Trains a population round by round: train, look at the returns, decide, apply; save, show, and end well.

A first interrupt saves everything and ends it; the same command goes on from there. A second ends it at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from weft.core.errors import CheckpointError
from weft.populations.cohort import Cohort
from weft.populations.keeping import Keeping
from weft.populations.lineage import Lineage
from weft.populations.rules import Rule, best_first
from weft.runtimes.loop.interrupt import Interrupt
from weft.runtimes.prepare.config import Prepared, Settings
from weft.services.run_folder import RunFolder
from weft.telemetry.live import NAME, Live
from weft.telemetry.telemetry import Telemetry, open_telemetry

NOTED = 0.5
"""Seconds between two records, at least."""


class PopulationLoop:
    """One process's part of training a population."""

    def __init__(
        self,
        cohort: Cohort,
        rule: Rule,
        prepared: Prepared,
        settings: Settings,
        folder: RunFolder,
        interrupt: Interrupt,
        fields: Sequence[str],
        about: dict[str, Any],
    ) -> None:
        self.cohort, self.rule, self.prepared, self.settings = cohort, rule, prepared, settings
        self.folder, self.interrupt, self.about = folder, interrupt, about
        self.keeping = Keeping(folder, settings, Lineage(list(fields), []))
        self._ends = rule.boundaries(prepared.steps)
        self._marks = marks(self._ends)
        self._done = 0  # rounds
        self._saved_at = self._noted_at = time.monotonic()
        self._rate = _Rate()
        self.warnings: list[str] = []

    def run(self) -> dict[str, Any]:
        """Train to the end or to an interrupt; gives the summary, which is written. Closes the cohort."""
        try:
            resumed = self.keeping.restore(self.cohort, self.warnings.append)
            if resumed is None:
                self.folder.trim_metrics(-1)
                self.cohort.start()
                self.keeping.lineage.add(0, self.cohort.members)
            else:
                self._done = resumed
                self.folder.trim_metrics(self._env_steps)
            self.folder.begin()
            with self._telemetry(resumed is not None) as telemetry:
                self.cohort.warn = telemetry.warn
                for warning in self.warnings:
                    telemetry.warn(warning)
                if resumed is not None:
                    telemetry.note(f"resumed {self.folder.path} at {self._env_steps:,} env steps")
                finished = self._rounds(telemetry)
                if not finished:
                    telemetry.note("interrupted: saving, then leaving (a second interrupt leaves at once)")
                    self.keeping.save(self.cohort, self._done)
                self._note(telemetry)
            how = "finished" if finished else "interrupted"
            wall = max(member.counters.wall_seconds for member in self.cohort.members)
            summary = self.keeping.finish(self.cohort, how, self.about, wall)
            if not finished and self.interrupt.signal is not None:
                summary["signal"] = self.interrupt.signal.name
            return summary
        finally:
            self.cohort.close()

    def _rounds(self, telemetry: Telemetry) -> bool:
        """All rounds that are left; False where an interrupt came."""
        while self._done < len(self._ends):
            for _ in self.cohort.train(self._ends[self._done]):
                if self.interrupt:
                    return False
                self._tick(telemetry)
            self._decide(telemetry)
        self.keeping.save(self.cohort, self._done)
        return True

    def _decide(self, telemetry: Telemetry) -> None:
        """The end of a round: what the rule makes of the returns; nothing after the last."""
        env_steps, all_steps = self._ends[self._done], self._marks[self._done]
        self._done += 1
        live = [member for member in self.cohort.members if member.live]
        if self._done == len(self._ends):
            self.keeping.lineage.add(all_steps, self.cohort.members)
            return
        returns = {member.index: member.recent_return for member in live}
        values = {member.index: member.values for member in self.cohort.members if not member.waiting}
        decision = self.rule.decide(self._done, returns, values, self.keeping.lineage.returns())
        self.keeping.lineage.add(all_steps, self.cohort.members, decision)
        for index in decision.stops:
            self.keeping.export(self.cohort, self.cohort.members[index], "stopped")
        for index in decision.finishes:
            self.keeping.export(self.cohort, self.cohort.members[index], "finished")
        self.cohort.apply(decision)
        for member in live:
            member.since = 0, 0.0
        if decision.copies:
            copied = ", ".join(f"{member} ← {source}" for member, source in sorted(decision.copies.items()))
            telemetry.note(f"round {self._done} at {env_steps:,} steps of each: {copied}")
        if decision.stops:
            left = sum(member.live for member in self.cohort.members)
            telemetry.note(f"round {self._done} at {env_steps:,} steps of each: {left} members go on")
        if decision.begins:
            telemetry.note(f"round {self._done}: members {min(decision.begins)} to {max(decision.begins)} begin")

    def _tick(self, telemetry: Telemetry) -> None:
        now = time.monotonic()
        if now - self._noted_at > NOTED:
            self._noted_at = now
            self._note(telemetry)
        if now - self._saved_at > self.settings.checkpoint_seconds:
            self._saved_at = now
            try:
                self.keeping.save(self.cohort, self._done)
            except (CheckpointError, OSError) as error:
                telemetry.warn(f"{error} Training goes on; saving is tried again.")

    def _note(self, telemetry: Telemetry) -> None:
        """One record: the best member's return, and each member's."""
        members = self.cohort.members
        returns = {member.index: member.return_mean for member in members}
        best = members[best_first(returns)[0]]
        record: dict[str, Any] = {
            "env_steps": self._env_steps,
            "learn_steps": sum(member.counters.learn_steps for member in members),
            "wall_seconds": round(max(member.counters.wall_seconds for member in members), 3),
            "env_steps_per_second": round(self._rate.of(self._env_steps), 1),
            "episodes": sum(window.total for member in members for window in member.counters.windows),
            "return_mean": best.return_mean,
            "best": best.index,
        }
        record |= {f"return_mean/{member.name}": member.return_mean for member in members}
        record |= {f"{n}/{m.name}": v for m in members for n, v in m.values.items() if isinstance(v, int | float)}
        telemetry.write(record, self._env_steps)

    @property
    def _env_steps(self) -> int:
        return sum(member.counters.env_steps for member in self.cohort.members)

    def _telemetry(self, resumed: bool) -> Telemetry:
        total = self.rule.total(len(self.cohort.members), self.prepared.steps)
        return open_telemetry(
            title=str(self.about["title"]),
            total_steps=total,
            quiet=self.settings.quiet,
            metrics=self.folder.metrics,
            tensorboard=self.folder.tensorboard if self.settings.tensorboard else None,
            wandb=self.settings.wandb,
            config=dict(self.folder.config),
            resumed_at=self._env_steps if resumed else None,
            more=[Live(self.folder.path / NAME, self.folder.is_held, lambda: {"total_steps": total})],
        )


class _Rate:
    """Env steps per second since the second time that it is asked: compilation comes before."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def of(self, env_steps: int) -> float:
        """The rate at ``env_steps``, now."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, env_steps
        began, before = self._first
        return (env_steps - before) / (now - began) if now > began else math.nan


def marks(ends: Sequence[int]) -> list[int]:
    """The ends of rounds one after another: where one is not above the one before it, members begin at 0."""
    found, before = [], 0
    for k, end in enumerate(ends):
        began = ends[k - 1] if k and ends[k - 1] < end else 0
        before += end - began
        found.append(before)
    return found
