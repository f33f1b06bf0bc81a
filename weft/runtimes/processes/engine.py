"""A plan of several groups behind the Engine protocol: the run goes on as in one process, and does not see workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.errors import ConfigError, WorkerFailed
from weft.core.recipe import to_recipe
from weft.core.types import TrainState, Tree
from weft.runtimes.config import Prepared
from weft.runtimes.engine import Episode, Report, StateLost, make_stages
from weft.runtimes.processes.account import OfRun
from weft.runtimes.processes.blueprint import Blueprint
from weft.runtimes.processes.books import PATIENCE_SECONDS, Books
from weft.runtimes.processes.gauges import Gauges
from weft.runtimes.processes.launcher import Heard, Launcher, how_it_ended
from weft.runtimes.processes.link import Said
from weft.runtimes.processes.schemas import channel_specs
from weft.runtimes.processes.standing import from_words, joined, standing_schema, to_words
from weft.runtimes.processes.supervisor import (
    LEARNING,
    Died,
    Doubt,
    Fail,
    Failed,
    Hung,
    Instruction,
    Kill,
    Ready,
    Recover,
    Replace,
    Supervisor,
    Tell,
)
from weft.runtimes.processes.watch import Watch
from weft.runtimes.rollout import make_rollout
from weft.telemetry.ledger import Ledger

START_SECONDS = 120.0
"""What workers have to get ready: JAX loads, environments are made."""

DOUBT_SECONDS = 3.0
"""How long an error of one of several learners may turn out to be another's death."""


class ProcessState(NamedTuple):
    """What a checkpoint holds: the learner's state, and in lockstep where the lanes stand, side by side."""

    train: TrainState
    fragments: tuple[Tree, ...]
    lanes: Tree  # a Standing, or a LoopState where actors roll a JAX environment out; else ()


class ProcessEngine:
    """Runs a blueprint's workers. Learning goes on between ``advance`` and the report, so it is asynchronous."""

    def __init__(self, prepared: Prepared, blueprint: Blueprint, logs: Path, hang_seconds: float) -> None:
        self.prepared, self.blueprint, self.logs, self.hang_seconds = prepared, blueprint, logs, hang_seconds
        self.warn: Callable[[str], None] = lambda text: None  # replaced by who shows it
        self._stages = make_stages(prepared.algorithm, prepared.graph)
        compiled = bool(blueprint.kind("actor")) and prepared.source.pure is not None
        self._specs = channel_specs(blueprint, prepared.algorithm, compiled=compiled)
        self._launcher: Launcher | None = None
        self.supervisor = Supervisor(blueprint)
        self._watch = Watch(blueprint, hang_seconds)
        self._version = self._granted = 0
        self._learned: dict[int, dict[str, Any]] = {}
        self._episodes: list[Episode] = []
        self._saved: dict[int, Said] = {}
        self._compiled = compiled
        self._lane_leaves: list[np.ndarray[Any, Any]] = []
        self._snapshots: dict[str, Any] = {}
        self._lost: dict[str, list[int]] = {}
        self._resume_leaves: list[np.ndarray[Any, Any]] | None = None
        self._gauges = Gauges(
            blueprint,
            self._specs,
            cores=prepared.machine.cores,
            warm_up=prepared.warm_up,
        )
        self._lags: dict[int, int] = {}
        self._books = Books(blueprint, prepared.algorithm.unroll)
        self._told_restarts = 0
        self._doubt: tuple[float, str] | None = None  # when the run is to fail, and why
        self._failed = ""  # why it has

    @property
    def asynchronous(self) -> bool:
        """Always."""
        return True

    def start(self) -> None:
        """Begin from nothing: start every worker, and wait until all are ready."""
        self._lane_leaves, self._snapshots = [], {}
        self._go_on(None, 0, Ledger())

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from a saved state: exactly in lockstep, else with environments that begin anew."""
        leaves = to_words((tree.train, tree.fragments))
        self._lane_leaves, self._snapshots = to_words(tree.lanes), document["snapshots"]
        self._go_on(leaves, int(np.asarray(tree.train.step)), Ledger.from_json(document["samples"]))
        if not self._lane_leaves:
            return [f"environment {i}" for i in range(self.prepared.envs)]
        return [f"environment {self.blueprint.lanes[int(k)].first + r}" for k, rows in self._lost.items() for r in rows]

    def template(self) -> Tree:
        """The saved state's structure, shapes and dtypes."""
        train, fragments = jax.eval_shape(self._stages.init, jax.ShapeDtypeStruct((), np.int32))
        return ProcessState(train, fragments, self._lanes_schema())

    def _lanes_schema(self) -> Tree:
        prepared = self.prepared
        if not self.blueprint.lockstep:
            return ()
        if not self._compiled:
            return standing_schema(prepared.algorithm, prepared.envs)
        assert prepared.source.pure is not None
        rollout = make_rollout(prepared.algorithm, prepared.source.pure)
        indices = jax.ShapeDtypeStruct((prepared.envs,), np.int32)
        return jax.eval_shape(rollout.init, jax.ShapeDtypeStruct((), np.int32), indices)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The learner's state, fetched from its worker. Only while nothing is under way."""
        like = self.template()
        said = self._fetch_state(self._standing_sides if self.blueprint.lockstep else ())
        (learner,) = (s.arrays for s in said if s.body["side"] == self._holder)
        train, fragments = from_words(learner, (like.train, like.fragments))
        lanes: dict[int, list[np.ndarray[Any, Any]]] = {}
        snapshots: dict[str, Any] = {}
        for part in said:
            snapshots |= part.body.get("snapshots", {})
            mine = part.body.get("lanes", ())
            size = len(part.arrays) // max(len(mine), 1)
            lanes |= {lane: part.arrays[k * size : (k + 1) * size] for k, lane in enumerate(mine)}
        state = from_words(joined([lanes[k] for k in sorted(lanes)]), like.lanes) if lanes else ()
        trained = self._version * self.prepared.steps_per_learn
        ledger = self._books.ledger(trained, PATIENCE_SECONDS)
        document = {"samples": ledger.to_json(), "restarts": self._new_restarts(), "snapshots": snapshots}
        return ProcessState(train, fragments, state), document

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Grant ``learn_steps`` more learn steps; the result waits for them."""
        launcher = self._running()
        first = self._granted + 1
        self._granted += learn_steps
        launcher.account.run[OfRun.LIMIT] = self._granted
        launcher.ring()
        last = self._granted

        def fetch() -> Report:
            while self._version < last:
                self._pump(0.2)
            return self._report(first, last)

        return fetch

    def train_state(self) -> TrainState:
        """The learner's state."""
        learner = jax.eval_shape(self._stages.init, jax.ShapeDtypeStruct((), np.int32))
        (arrays,) = (said.arrays for said in self._fetch_state(()) if said.body["side"] == self._holder)
        train: TrainState = from_words(arrays, learner)[0]
        return train

    def close(self) -> None:
        """End all workers; may be called twice."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    # ---- starting ---------------------------------------------------------------------------------------------------

    def _go_on(self, leaves: list[np.ndarray[Any, Any]] | None, version: int, ledger: Ledger) -> None:
        """From a state and the ledger as it was then: with new workers, or with those that are still alive."""
        self._resume_leaves, self._doubt = leaves, None
        self._learned.clear()
        if self._launcher is not None and not self.blueprint.lockstep:
            self._revive(version, ledger)
            return
        self._books.go_back(ledger)
        self._begin(version)

    def _revive(self, version: int, ledger: Ledger) -> None:
        """New learners among producers that go on. What was trained on since the checkpoint is gone, and counted."""
        launcher, learning = self._running(), self.supervisor.learning
        for worker in learning:
            launcher.end(worker)
        self._books.settle(ledger.trained)
        self._version = self._granted = version
        launcher.account.run[OfRun.LIMIT] = version
        self.supervisor.recovered(learning)
        coordinator = launcher.reserve_port() if self.blueprint.learners > 1 else None
        for worker in learning:
            self._start(worker, coordinator)
        # Not for others that died at the same time: they may wait for what only learning sets free.
        self._await_ready(set(learning))

    def _begin(self, version: int) -> None:
        self.close()
        prepared = self.prepared
        common = {
            "algorithm": to_recipe(prepared.algorithm, "the algorithm"),
            "spec": to_recipe(prepared.algorithm.spec),
            "source": _source_recipe(prepared),
            "seed": prepared.seed,
        }
        self.supervisor.recovered(tuple(worker.index for worker in self.blueprint.workers))
        self._watch = Watch(self.blueprint, self.hang_seconds)
        self._launcher = Launcher(self.blueprint, self._specs, common, self.logs)
        self._version = self._granted = version
        self._launcher.account.run[OfRun.LIMIT] = version
        first = version if self.blueprint.lockstep else 0
        self._books.open(self._launcher.account, first)
        coordinator = self._launcher.reserve_port() if self.blueprint.learners > 1 else None
        self._lost = {}
        everyone = {worker.index for worker in self.blueprint.workers}
        stepping = {side.worker for side in self.blueprint.kind("env")} if self._lane_leaves else set()
        for worker in sorted(stepping):  # first: act must know which environments could not be brought back
            self._start(worker, coordinator)
        self._await_ready(stepping)
        for worker in sorted(everyone - stepping):
            self._start(worker, coordinator)
        self._await_ready(everyone)
        self._gauges.begin(self._launcher.account, self._launcher.channels)

    def _start(self, worker: int, coordinator: str | None) -> None:
        launcher = self._running()
        kinds = {self.blueprint.sides[s].kind for s in self.blueprint.workers[worker].sides}
        leaves = (self._resume_leaves or []) if kinds & set(LEARNING) else []
        standing = self._lane_leaves if kinds & {"act", "actor"} else []
        more = {"resumed": len(leaves), "standing": bool(standing), "coordinator": coordinator, "lost": self._lost}
        if self._lane_leaves and not self._compiled and kinds & {"env", "actor"}:
            more["snapshots"] = self._snapshots
        launcher.start(worker, more, [*leaves, *standing])

    def _await_ready(self, workers: set[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not workers <= self.supervisor.ready:
            self._pump(0.2)
            if time.monotonic() > deadline:
                late = [self.blueprint.workers[i].name for i in sorted(workers - self.supervisor.ready)]
                raise WorkerFailed(
                    f"not ready after {START_SECONDS:.0f} s: {', '.join(late)}. Their logs are in {self.logs}."
                )

    # ---- hearing ----------------------------------------------------------------------------------------------------

    def _running(self) -> Launcher:
        assert self._launcher is not None
        return self._launcher

    def _pump(self, timeout: float) -> None:
        """Hear workers for up to ``timeout`` seconds, and do what follows from it."""
        instructions: list[Instruction] = []
        for worker, seconds in self._watch.stuck(self._running().account.sides, self.supervisor.ready):
            instructions += self.supervisor.handle(Hung(worker, seconds))
        for worker, seconds in self._running().starting(self.supervisor.ready):
            if seconds > START_SECONDS + 5.0:  # a later life; who waits for a first one gives up before
                instructions += self.supervisor.handle(Hung(worker, seconds))
        for heard in self._running().hear(timeout):
            instructions += self._take(heard)
        # Recover last: it leaves by an exception, and who died at the same time must be replaced all the same.
        for instruction in sorted(instructions, key=lambda i: isinstance(i, Recover)):
            self._do(instruction)
        if self._doubt is not None and time.monotonic() > self._doubt[0]:
            self._do(Fail(self._doubt[1]))

    def _take(self, heard: Heard) -> list[Instruction]:
        said = heard.said
        if said is None:
            killed = heard.code is not None and heard.code < 0
            return self.supervisor.handle(Died(heard.worker, how_it_ended(heard.code), killed))
        match said.kind:
            case "ready":
                self._lost |= said.body.get("lost") or {}
                return self.supervisor.handle(Ready(heard.worker))
            case "error":
                text = said.body["text"] or said.body["kind"]
                trace = said.body["traceback"]
                return self.supervisor.handle(Failed(heard.worker, f"{text}\n{trace}" if trace else text))
            case "learned":
                self._version = said.body["version"]
                self._learned[self._version] = said.body
                for lag, count in said.body["lags"]:
                    self._lags[lag] = self._lags.get(lag, 0) + count
            case "episodes":
                self._episodes += [tuple(episode) for episode in said.body["episodes"]]
            case "saved":
                self._saved[said.body["side"]] = said
        return []

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Fail(reason):
                self._failed = f"{reason}\nLogs of all workers are in {self.logs}."
                raise WorkerFailed(self._failed)
            case Doubt(reason):
                self._doubt = self._doubt or (time.monotonic() + DOUBT_SECONDS, reason)
            case Tell(text):
                self.warn(text)
            case Kill(worker):
                self._running().kill(worker)
            case Replace(worker):
                self._start(worker, None)
            case Recover():
                raise StateLost

    @property
    def _holder(self) -> int:
        """The side that has the learner's state."""
        return next(side.index for side in self.blueprint.sides if side.kind in LEARNING)

    @property
    def _standing_sides(self) -> tuple[int, ...]:
        """The sides that know where lanes stand."""
        return tuple(side.index for side in self.blueprint.sides if side.kind in ("env", "act", "actor"))

    def _fetch_state(self, more: tuple[int, ...]) -> list[Said]:
        """What learners' sides, and ``more`` sides, have to save. Raises StateLost where one of them is gone.

        All learners are asked, although one has the state: the others may not have counted yet what is in it. Raises
        WorkerFailed where the run has failed: who is asked might wait for ever for a worker that is gone.
        """
        if self._failed:
            raise WorkerFailed(self._failed)
        sides = {*(side.index for side in self.blueprint.sides if side.kind in LEARNING), *more}
        workers = {self.blueprint.sides[side].worker for side in sides}
        self._saved.clear()
        for worker in workers:
            self._running().say(worker, "save", {"sides": sorted(sides)})
        while not sides <= set(self._saved):
            if not workers <= self.supervisor.ready:
                raise StateLost
            self._pump(0.2)
        return [self._saved[side] for side in sorted(sides)]

    # ---- reporting --------------------------------------------------------------------------------------------------

    def _report(self, first: int, last: int) -> Report:
        rows = [self._learned.pop(version) for version in range(first, last + 1)]
        metrics = {name: np.array([row["metrics"][name] for row in rows]) for name in rows[0]["metrics"]}
        episodes, self._episodes = self._episodes, []
        learned, rewards = all(row["learned"] for row in rows), all(row["rewards"] for row in rows)
        launcher = self._running()
        self._gauges.look(launcher.account, launcher.channels, last - first + 1)
        return Report(
            last - first + 1,
            metrics,
            [episodes],
            learned,
            rewards,
            False,
            self._gauges.shares(),
            self._books.ledger(last * self.prepared.steps_per_learn),
            self._new_restarts(),
            self._figures(),
            self._gauges.streams(),
        )

    def _new_restarts(self) -> int:
        """Of workers, since it was last told."""
        told, self._told_restarts = self._told_restarts, self.supervisor.restarts
        return self._told_restarts - told

    def _figures(self) -> dict[str, float]:
        """The lag of what was trained on since the last report; how busy the stages and full the queues are."""
        lags, self._lags = self._lags, {}
        count = sum(lags.values())
        figures = self._gauges.figures(self._running().account)
        if count and not self.blueprint.lockstep:
            figures["lag"] = sum(lag * n for lag, n in lags.items()) / count
            figures["lag_max"] = float(max(lags))
            figures |= {f"lag/{lag}": n / count for lag, n in sorted(lags.items())}
        return figures


def _source_recipe(prepared: Prepared) -> Any:
    """How workers make the environment: put together as here, or opened anew by its name."""
    source = prepared.source
    try:
        return to_recipe(source, f"environment {source.name!r}")
    except ConfigError:
        if ":" not in source.name or source.name.startswith(("gymnax:", "weft:")):
            return {"open": source.name, "vector": prepared.vector, "options": to_recipe(dict(prepared.env_options))}
        raise
