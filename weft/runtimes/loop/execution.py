"""One process's part of a run: begun or resumed, dispatched and logged, saved, summed up; the same for every engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from weft.core.errors import EnvironmentFault, PlanError, RunError, WorkerFailed
from weft.envs.guards import Trouble
from weft.runtimes.actors import publishers_of
from weft.runtimes.compiled.engine import MAX_DISPATCH
from weft.runtimes.loop.bad_steps import IN_A_ROW, BadSteps
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.diverged import diverged, refused_words
from weft.runtimes.loop.engine import Engine, Report, StateLost, params_of
from weft.runtimes.loop.interrupt import Abandoned, Interrupt, Interrupted
from weft.runtimes.loop.keeper import Keeper
from weft.runtimes.loop.live_state import begin_live, title_of
from weft.runtimes.loop.lookout import Lookout
from weft.runtimes.loop.scaling import Scaling
from weft.runtimes.loop.summary import summarise
from weft.runtimes.loop.troubles import TroubleLog
from weft.runtimes.loop.watching import Watching
from weft.runtimes.policies.run import Run
from weft.runtimes.prepare.config import Prepared, Settings
from weft.services import checkpoints
from weft.services.family import Family
from weft.services.mirror import Mirror
from weft.services.run_folder import RunFolder
from weft.telemetry.ledger import Ledger
from weft.telemetry.plain import Plain, Quiet
from weft.telemetry.stopping import Hooks
from weft.telemetry.telemetry import Telemetry, open_telemetry

DISPATCH_SECONDS = 0.25
"""How much work is dispatched at a time: what an interrupt or a log line may have to wait for."""

MAX_BEGINNINGS = 5
"""How often a run is begun, at most, if its workers die while they start."""


class Execution:
    """One process's part of a run."""

    def __init__(
        self,
        prepared: Prepared,
        settings: Settings,
        folder: RunFolder,
        interrupt: Interrupt,
        family: Family,
        mirror: Mirror | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.prepared, self.settings, self.folder = prepared, settings, folder
        self.family, self.interrupt = family, interrupt
        self.counters = Counters(prepared.series, warm_up=prepared.warm_up)
        self.dispatch_size = 1
        self.hooks = Hooks()
        self.on_summary: Callable[[dict[str, Any]], None] = lambda summary: None
        self.on_begun: Callable[[Path], None] = lambda folder: None
        self.warnings: list[str] = []
        self.keeper = Keeper(prepared, settings, folder, mirror)
        self.keeper.warn = self.warnings.append
        self.watching = Watching(prepared, folder, interrupt)
        self.scaling = scaling or Scaling(settings, folder)
        self.bad_steps, self.inspect = BadSteps(), folder.path / "bad_batches"
        self.troubles = TroubleLog(folder.path / "logs" / "environments.log")

    def run(self, engine: Engine) -> Run:
        """Train to the end, an interrupt or an error; leaves a summary, unless interrupted twice. Closes the engine."""
        lookout = Lookout(engine, self.interrupt, self.settings.hang_seconds, self.family, Plain().warn)
        lookout.start()
        try:
            if (finished := self._finished_before(engine)) is not None:
                return finished
            try:
                resumed_at = self._begin_until_begun(engine)
            except Interrupted:
                return self._left_early(engine)
            except Exception as error:
                if not self.folder.resumed:  # else the summary of before is the better one
                    with suppress(RunError):
                        self._sum_up({}, "failed", error)
                raise
            self.folder.begin()
            self.on_begun(self.folder.path)
            self.keeper.open()
            with lookout.leaving_out():  # a sink may have a process of its own
                telemetry = self._telemetry(engine, resumed_at)
            with telemetry:
                lookout.say = telemetry.warn
                if self.folder.kept is not None:
                    telemetry.note(f"the run that was there is kept as {self.folder.kept}")
                for warning in self.warnings:
                    telemetry.warn(warning)
                if about := self.prepared.source.about:
                    telemetry.note(f"{self.prepared.source.name}: {about}")
                try:
                    self._train(engine, telemetry)
                except Interrupted:  # while workers of another plan began: what the old ones had is saved
                    self.keeper.look(wait=True)
                    return self._left_early(engine)
                except Abandoned:
                    self.keeper.look(wait=True)  # what was being written is saved
                    raise
                except Exception as error:  # the user's own too: an algorithm, a fragment
                    self.keeper.look(wait=True)
                    with suppress(RunError):  # the disk may be what failed
                        self._finish(engine, "failed", error)
                    raise
            early = self.counters.learn_steps < self.prepared.learn_steps
            how = "interrupted" if self.interrupt else "stopped" if self.hooks.stopped else "finished"
            return self._finish(engine, how if early else "finished")
        finally:
            try:
                engine.close()
            finally:
                self.scaling.close()
                lookout.close()

    def _finished_before(self, engine: Engine) -> Run | None:
        """The run as it ended, where it has made all its steps; nothing in its folder is touched."""
        summary = self.folder.summary() if self.folder.resumed else None
        asked = self.prepared.learn_steps
        if summary is None or summary.get("exit") != "finished" or summary.get("learn_steps", 0) < asked:
            return None
        restored = checkpoints.load_latest(
            self.folder.checkpoints, engine.template(), self.warnings.append, run=self.folder.id
        )
        if restored is None or restored[1]["counters"]["learn_steps"] < self.prepared.learn_steps:
            self.warnings.clear()  # said when they are loaded again
            return None
        screen = Quiet() if self.settings.quiet else Plain()
        for warning in self.warnings:
            screen.warn(warning)
        screen.note(
            f"run {self.folder.path} was finished before. To go on, ask for more --steps; to begin anew, say --fresh "
            "or name another --run."
        )
        params = jax.device_get(self._params(restored[0]))
        summary["run"] = str(self.folder.path)
        return self._as_run(params, summary)

    def _begin_until_begun(self, engine: Engine) -> int | None:
        """Begin; and again where a worker is ready and dies while others still start. Returns what ``_begin`` does."""
        engine.warn, engine.check = self.warnings.append, self.interrupt.check
        engine.inspect = self.inspect
        # Environments of this process are made and brought back in code of theirs. Workers check while they wait.
        self.interrupt.raises = not self.prepared.in_workers
        try:
            for _ in range(MAX_BEGINNINGS):
                self.interrupt.check()
                try:
                    return self._begin(engine)
                except StateLost:
                    engine.close()
        finally:
            self.interrupt.raises, engine.check = False, lambda: None
        raise WorkerFailed(f"the run could not begin, {MAX_BEGINNINGS} times: {'; '.join(self.warnings)}")

    def _begin(self, engine: Engine) -> int | None:
        """Start, or resume from the newest checkpoint that is whole: the env steps made before, None for a new run."""
        restored = self.keeper.restore(engine.template())
        if restored is None:
            if self.folder.resumed and self.folder.metrics.exists():
                self.folder.trim_metrics(-1)
            engine.start()
            return None
        tree, document = restored
        self.watching.curriculum.go_on((document.get("watching") or {}).get("curriculum"))
        lost = engine.resume(tree, document["engine"])
        if lost:
            self.warnings.append(f"resumed, but not exactly: {self._fresh(lost)}")
        warm_up = self.counters.warm_up
        self.counters = Counters.from_document(document["counters"], self.prepared.series, warm_up)
        self.watching.go_on(document.get("watching"), self.counters)
        self.folder.trim_metrics(self.counters.env_steps, self.counters.learn_steps)
        return self.counters.env_steps

    def _left_early(self, engine: Engine) -> Run:
        """A signal came before the run went on: as it was saved, where it was."""
        engine.close()
        restored = self.keeper.latest(engine.template())
        if restored is None:
            return self._sum_up({}, "interrupted", None)
        document = restored[1]["counters"]
        self.counters = Counters.from_document(document, self.prepared.series, self.counters.warm_up)
        return self._sum_up(jax.device_get(self._params(restored[0])), "interrupted", None)

    def _telemetry(self, engine: Engine, resumed_at: int | None) -> Telemetry:
        prepared, folder, settings = self.prepared, self.folder, self.settings
        return open_telemetry(
            title=title_of(prepared),
            total_steps=prepared.env_steps,
            quiet=settings.quiet,
            metrics=folder.metrics,
            tensorboard=folder.tensorboard if settings.tensorboard else None,
            wandb=settings.wandb,
            config=prepared.config(),
            resumed_at=resumed_at,
            more=[begin_live(folder, engine, lambda: self.counters, prepared, self.scaling.hosts), self.hooks],
        )

    def _train(self, engine: Engine, telemetry: Telemetry) -> None:
        """Loop to the end; where a worker took the learner's state with it, on again from the last that was saved."""
        engine.warn = self.keeper.warn = self.scaling.warn = telemetry.warn
        self.keeper.on_saved = lambda: telemetry.mend(self.counters.env_steps) if self.folder.is_held() else None
        lost = False
        while True:
            try:
                if lost:
                    self._go_back(engine, telemetry)
                lost = False
                return self._loop(engine, telemetry)
            except StateLost:
                lost = True
            except (WorkerFailed, PlanError) as error:  # hosts were lost, and there is no room for all workers
                self.prepared, lost = self.scaling.smaller(engine, self.prepared, error, telemetry), True

    def _go_back(self, engine: Engine, telemetry: Telemetry) -> None:
        self.keeper.lost()
        self.dispatch_size = 1  # what is learned from now on is soon reported, and saved
        kept = self.keeper.latest(engine.template())
        self.counters.go_back(kept[1]["counters"] if kept else None)
        self.watching.go_on(kept[1].get("watching") if kept else None, self.counters)
        if self.prepared.synchrony.still:  # all that came after is undone, and not lost: it will be done again
            self.counters.ledger = Ledger.from_json(kept[1]["engine"]["samples"]) if kept else Ledger()
        self._forget_records(telemetry)
        self.watching.curriculum.go_on((kept[1].get("watching") or {}).get("curriculum") if kept else None)
        if kept:
            telemetry.warn(f"the run goes on from what was saved at {self.counters.env_steps:,} env steps")
            lost = engine.resume(kept[0], kept[1]["engine"])
            if lost and self.prepared.synchrony.still:
                telemetry.warn(f"it goes on from there, but not exactly: {self._fresh(lost)}")
        else:
            telemetry.warn("nothing was saved yet: the run begins again from its start")
            engine.start()

    def _forget_records(self, telemetry: Telemetry) -> None:
        """Drop the records of learn steps that were lost: they are made again, and curves must not go backwards."""
        telemetry.reopen(self.counters.env_steps)
        try:
            learned = self.counters.learn_steps
            self.folder.trim_metrics(self.counters.env_steps if learned else -1, learned)
        except RunError as error:
            telemetry.warn(f"{error} Records of steps that are made again stay in it twice.")

    def _fresh(self, lost: list[str]) -> str:
        """Which environments could not be brought back, in words."""
        everything = self.prepared.envs * max(self.prepared.seeds, 1)
        which = "all environments" if len(lost) == everything else ", ".join(lost)
        return f"{which} begin a fresh episode (their state cannot be saved)"

    def _loop(self, engine: Engine, telemetry: Telemetry) -> None:
        """Keep one dispatch under way while the one before is read."""
        counters, total = self.counters, self.prepared.learn_steps
        if counters.learn_steps and counters.learn_steps < total:
            telemetry.note(f"resumed {self.folder.path} at {counters.env_steps:,} env steps")
        dispatched = counters.learn_steps
        self.watching.turn(engine, self.counters, telemetry)
        under_way: Callable[[], Report] | None = None
        while dispatched < total or under_way is not None:
            following = None
            if dispatched < total and not (self.interrupt or self.hooks.stopped):
                count = min(self._dispatch_size(), total - dispatched, self.watching.until(dispatched))
                following = engine.advance(count)
                dispatched += count
            if under_way is not None:
                dispatched = self._taken(under_way(), dispatched, telemetry)
            under_way = following
            if under_way is not None and not engine.asynchronous:
                dispatched = self._taken(under_way(), dispatched, telemetry)
                under_way = None
            if (self.interrupt or self.hooks.stopped) and under_way is None:
                why = "interrupted" if self.interrupt else self.hooks.stopped
                telemetry.note(f"{why}: saving, then leaving (a second interrupt leaves at once)")
                break
            self.keeper.look()
            save = self.keeper.is_due(counters.env_steps) and dispatched < total
            goes_on = dispatched < total and not (self.interrupt or self.hooks.stopped)
            scale = goes_on and self.scaling.is_due(self.prepared, counters)
            if under_way is not None and (save or scale or self.watching.is_due(dispatched)):
                dispatched = self._taken(under_way(), dispatched, telemetry)
                under_way = None
            self.watching.turn(engine, self.counters, telemetry)
            if scale:
                asked = engine, self.prepared, lambda: self._save(engine)
                self.prepared = self.scaling.carry_out(*asked, telemetry, self.interrupt)
                dispatched, self.dispatch_size = counters.learn_steps, 1
            elif save:
                self._save(engine)
        # Where all is still, nothing changes without a learn step, and workers that have just begun cannot be saved.
        if counters.learn_steps and not (self.prepared.synchrony.still and self._is_saved()):
            self.keeper.save_at_last(*self._state(engine), self.counters)
        while self.watching.is_owed(total) and counters.learn_steps >= total and not self.interrupt:
            before = self.watching.curriculum.to_document()
            self.watching.take(engine.last_looks(), counters, telemetry)
            if self.watching.curriculum.to_document() != before:  # a run that is asked for more steps goes on with them
                self.keeper.save_at_last(*self._state(engine), self.counters)

    def _save(self, engine: Engine) -> tuple[Any, dict[str, Any]]:
        state = self._state(engine)
        self.keeper.save(*state, self.counters)
        return state

    def _taken(self, report: Report, dispatched: int, telemetry: Telemetry) -> int:
        """Count a report; returns ``dispatched``, put right by it.

        A learner with several messages for one unroll learns more often than asked, and not at all while a store fills.
        """
        if said := self.scaling.learned(report, self.counters):
            telemetry.note(said)
        self._take(report, telemetry)
        return max(dispatched - report.unmade, self.counters.learn_steps)

    def _dispatch_size(self) -> int:
        """About DISPATCH_SECONDS' worth, one unroll's at first: the result does not depend on it."""
        calls = self.prepared.calls_for_each_unroll
        seconds = self.counters.seconds_per_learn * calls
        wanted = 1 if seconds == 0 else max(1, min(MAX_DISPATCH, int(DISPATCH_SECONDS / seconds)))
        # Not all at once: what workers did while learn was compiled is learned from in no time.
        self.dispatch_size = min(wanted, 2 * self.dispatch_size)
        return self.dispatch_size * calls

    def _take(self, report: Report, telemetry: Telemetry) -> None:
        self.counters.take(report)
        self.troubles.take(report.troubles, telemetry.warn)
        record = self.counters.record() | {"saved_learn_steps": self.keeper.saved_steps}
        telemetry.write(record, self.counters.env_steps)
        self.watching.take(report.looks, self.counters, telemetry)
        if report.cut_again:
            spec = self.prepared.source.spec
            raise EnvironmentFault(
                f"environment {spec.name!r} truncated an episode twice within one unroll, although its spec says "
                f"max_episode_steps={spec.max_episode_steps}. If it truncates for other reasons too, set "
                "max_episode_steps to None in its EnvSpec."
            )
        refused, in_a_row = self.bad_steps.take(report.learned) if report.learned is not None else (0, 0)
        if not report.kept or not report.rewards_finite or in_a_row >= IN_A_ROW:
            where = f"run {self.folder.name!r}"
            raise diverged(self.prepared, where, report, self.counters.learn_steps, self.keeper.saved_steps)
        if refused:
            telemetry.warn(refused_words(refused, report, self.counters.learn_steps, self.inspect))

    def _is_saved(self) -> bool:
        """Whether the newest learn step is in a checkpoint, in a folder that is still there."""
        self.keeper.look(wait=True)
        return self.counters.learn_steps == self.keeper.saved_steps and self.folder.is_held()

    def _state(self, engine: Engine) -> tuple[Any, dict[str, Any]]:
        """The engine's state and the run's counters, to be saved."""
        tree, document = engine.saved()
        if "samples" in document:  # workers may have died, and have counted, since the last report
            self.counters.ledger = Ledger.from_json(document["samples"])
            self.counters.restarts += document["restarts"]
            troubles = [Trouble(*values) for values in document.pop("troubles")]
            self.counters.count(troubles)
            self.troubles.take(troubles, engine.warn)
            self.counters.learn_steps, self.counters.env_steps = document["learn_steps"], document["env_steps"]
        counted = {"counters": self.counters.to_document(), "watching": self.watching.to_document()}
        return tree, {"engine": document, **counted}

    def _finish(self, engine: Engine, how: str, error: Exception | None = None) -> Run:
        try:
            params = jax.device_get(params_of(engine.train_states()))
        except (RuntimeError, WorkerFailed):  # a device or a worker that failed has taken them with it
            self.keeper.warn = lambda text: None
            kept = self.keeper.latest(engine.template()) if error is None else None
            if error is None and kept is None:
                raise
            params = jax.device_get(self._params(kept[0])) if kept is not None else {}
        return self._sum_up(params, how, error)

    def _params(self, tree: Any) -> Any:
        """The params in a saved state."""
        return params_of({name: tree.fragments[name] for name in publishers_of(self.prepared.graph)})

    def _sum_up(self, params: Any, how: str, error: Exception | None) -> Run:
        summary = summarise(self.prepared, self.counters, self.folder.path, how, params)
        summary |= {"saved_learn_steps": self.keeper.saved_steps, "id": self.folder.id}
        summary |= self.watching.summary() | self.hooks.summary(how)
        if how == "interrupted" and self.interrupt.signal is not None:
            summary["signal"] = self.interrupt.signal.name
        if error is not None:
            summary["error"] = str(error)
        self.on_summary(summary)
        self.folder.write_summary(summary)
        return self._as_run(params, summary)

    def _as_run(self, params: Any, summary: dict[str, Any]) -> Run:
        prepared = self.prepared
        return Run(self.folder.path, prepared.algorithm, params, summary, prepared.seeds, prepared.source)
