"""What looks on in a run: when it looks, what it found, and the params that it found best.

in one process    the loop stops at the versions that are due, and has the watchers look before it goes on
in workers        a watcher has a side of its own, which looks at the newest params; what it found comes with reports
either way        figures are logged once, the params of the highest score yet are kept as the tag ``best``
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax

from weft.core.errors import CheckpointError
from weft.core.types import TrainState
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.curriculum import Curriculum
from weft.runtimes.loop.engine import Engine, Trained
from weft.runtimes.loop.interrupt import Interrupt, Interrupted
from weft.runtimes.policies.evaluating import EVALUATE, Evaluate
from weft.runtimes.prepare.config import Prepared, Settings
from weft.runtimes.watcher import Look, Seen, WatchContext, Watcher, look
from weft.services import checkpoints
from weft.services.checkpoints import Label
from weft.services.run_folder import RunFolder
from weft.services.tags import BEST, write_tag
from weft.telemetry.telemetry import Telemetry

FAR = 2**62
"""Learn steps until the next look, where there is none to wait for."""


def evaluation_of(settings: Settings) -> tuple[tuple[str, Evaluate], ...]:
    """What settings ask to be set beside a graph to look on: a name and its code, or nothing."""
    if not settings.eval_every:
        return ()
    return ((EVALUATE, Evaluate(settings.eval_every, settings.eval_episodes, settings.eval_sample)),)


class Watching:
    """The fragments that look on, of one execution. A signal gives up the look under way."""

    def __init__(self, prepared: Prepared, folder: RunFolder, interrupt: Interrupt) -> None:
        self._prepared, self._folder, self._interrupt = prepared, folder, interrupt
        self.fragments = [f for f in prepared.graph.fragments if f.role.watches]
        self._here = self.fragments if not prepared.in_workers else []
        self._pace = prepared.pace
        self.curriculum = Curriculum(prepared)
        self._every = {f.name: int(f.code.every) for f in self.fragments}
        self._watchers: dict[str, Watcher] = {}
        self._looked = dict.fromkeys(self._every, 0)  # the version that each has looked at last
        self.found: dict[str, float] = {}  # what was found last
        self.seconds = 0.0  # that looking took, of training's where it is in this process
        self.best: dict[str, Any] | None = None  # of the highest score: that, and the version

    def until(self, learn_steps: int) -> int:
        """Learn steps until the loop must stop for a look."""
        betweens = [self._pace.between(self._every[f.name]) for f in self._here]
        return min((between - learn_steps % between for between in betweens), default=FAR)

    def is_due(self, learn_steps: int) -> bool:
        """Whether the loop must stop for a look at these params."""
        return any(self._is_due(f.name, learn_steps) for f in self._here)

    def is_owed(self, learn_steps: int) -> bool:
        """Whether, at the end of the run, something in a worker has not looked at its last params yet."""
        return not self._here and any(version < learn_steps for version in self._looked.values())

    def turn(self, engine: Engine, counters: Counters, telemetry: Telemetry) -> None:
        """Have what is due in this process look at the params as they are; blocks until it has."""
        if self.is_due(counters.learn_steps) and not self._interrupt:
            began = time.perf_counter()
            looks = self._look(engine, counters.learn_steps)
            counters.leave_out(time.perf_counter() - began)
            self.take(looks, counters, telemetry)

    def _look(self, engine: Engine, learn_steps: int) -> list[Look]:
        looks: list[Look] = []
        params = {name: jax.device_get(state.params) for name, state in engine.train_states().items()}
        for fragment in self._here:
            if not self._is_due(fragment.name, learn_steps):
                continue
            if fragment.name not in self._watchers:
                p = self._prepared
                context = WatchContext(p.graph.unwatched(), p.played, p.seed, p.seeds, self._interrupt.check)
                self._watchers[fragment.name] = fragment.role.code().watcher(fragment, context)
            read = {s.source: params[s.source] for s in self._prepared.graph.into(fragment.name)}
            seen = Seen(learn_steps, self._pace.steps_until(learn_steps), read)
            try:
                looks.append(look(fragment, self._watchers[fragment.name], seen))
            except Interrupted:
                break
        return looks

    def take(self, looks: Iterable[Look], counters: Counters, telemetry: Telemetry) -> None:
        """Count looks, keep the params of the best, and log what was found."""
        figures: dict[str, float] = {}
        for one in looks:
            self._looked[one.fragment] = max(self._looked[one.fragment], one.seen.version)
            self.seconds += one.seconds
            figures |= one.looked.figures
            if one.fragment == EVALUATE:
                figures |= self.curriculum.take(one)
            score = one.looked.score
            if score is not None and math.isfinite(score) and (self.best is None or score >= self.best["score"]):
                self.best = {"score": score, "version": one.seen.version, "env_steps": one.seen.env_steps}
                self._keep(one, telemetry.warn)
        if figures:
            self.found = figures
            telemetry.write(counters.record() | figures, counters.env_steps, at_once=True)

    def _keep(self, one: Look, warn: Callable[[str], None]) -> None:
        """Write params under the tag; a disk in trouble costs the tag alone."""
        tree = Trained({name: TrainState(params, None, None, None) for name, params in one.seen.params.items()})  # type: ignore[arg-type]
        counters = {"learn_steps": one.seen.version, "env_steps": one.seen.env_steps}
        label = Label(self._folder.id, one.seen.env_steps, score=one.looked.score)
        try:
            if self._folder.is_held():
                packed = checkpoints.pack(one.seen.version, tree, {"counters": counters}, label)
                write_tag(self._folder.checkpoints, BEST, packed.pieces)
        except CheckpointError as error:
            warn(f"{error} Training goes on.")

    def to_document(self) -> dict[str, Any]:
        """For a checkpoint; ``go_on`` brings it back."""
        found = {name: value if math.isfinite(value) else None for name, value in self.found.items()}
        kept = {"looked": self._looked, "found": found, "seconds": self.seconds, "best": self.best}
        return {**kept, "curriculum": self.curriculum.to_document()}

    def go_on(self, document: dict[str, Any] | None, counters: Counters) -> None:
        """From a checkpoint of the run; one without anything that looks on says nothing of it."""
        saved = document or {}
        looked = saved.get("looked", {})
        self._looked = {name: int(looked.get(name, counters.learn_steps)) for name in self._every}
        self.found = {n: math.nan if v is None else float(v) for n, v in saved.get("found", {}).items()}
        self.seconds, self.best = float(saved.get("seconds", 0.0)), saved.get("best")

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` has of it; empty where nothing was found."""
        if not self.found:
            return self.curriculum.summary()
        named = {n.removeprefix("eval/"): value for n, value in self.found.items() if not n.startswith("curriculum/")}
        evaluation = {**named, "seconds": round(self.seconds, 3), "best": self.best}
        return {"evaluation": evaluation, **self.curriculum.summary()}

    def _is_due(self, name: str, learn_steps: int) -> bool:
        return self._pace.is_due(learn_steps, self._looked[name], self._every[name])
