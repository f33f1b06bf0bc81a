"""A plan of several groups behind the Engine protocol: the run goes on as in one process, and does not see workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from weft.core.errors import WorkerFailed
from weft.core.types import TrainState, Tree
from weft.runtimes.loop.engine import Episode, Report, make_stages
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.control.pool import Beginning, WorkerPool
from weft.runtimes.workers.control.supervisor import LEARNING
from weft.runtimes.workers.counting.account import OfRun
from weft.runtimes.workers.counting.gauges import Gauges
from weft.runtimes.workers.counting.lags import Lags
from weft.runtimes.workers.counting.ledger import PATIENCE_SECONDS, AccountLedger
from weft.runtimes.workers.lane_checkpoint import from_words, to_words
from weft.runtimes.workers.layout.launch_spec import LaunchSpec
from weft.runtimes.workers.saving import put_together, state_schema
from weft.telemetry.ledger import Ledger


class ProcessEngine:
    """Runs an outfit's workers. Learning goes on between ``advance`` and the report, so it is asynchronous."""

    def __init__(self, prepared: Prepared, outfit: LaunchSpec, logs: Path, hang_seconds: float) -> None:
        self.prepared, self.blueprint, self._outfit = prepared, outfit.blueprint, outfit
        self.warn: Callable[[str], None] = lambda text: None  # replaced by who shows it
        self._stages = make_stages(prepared.algorithm, prepared.graph)
        self._crew = WorkerPool(
            outfit.blueprint,
            logs,
            hang_seconds,
            begin=self._beginning,
            take=self._take,
            warn=lambda text: self.warn(text),
        )
        self._version = self._granted = 0
        self._learned: dict[int, dict[str, Any]] = {}
        self._bad: int | None = None  # the first learn step that was refused: nothing is published any more
        self._episodes: list[Episode] = []
        self._compiled = outfit.compiled
        self._lane_leaves: list[np.ndarray[Any, Any]] = []
        self._snapshots: dict[str, Any] = {}
        self._lost: dict[str, list[int]] = {}
        self._resume_leaves: list[np.ndarray[Any, Any]] | None = None
        self._gauges = Gauges(
            outfit.blueprint,
            outfit.specs,
            cores=prepared.machine.cores,
            warm_up=prepared.warm_up,
        )
        self._lags = Lags()
        self._books = AccountLedger(outfit.blueprint, prepared.algorithm.unroll)
        self._told_restarts = 0

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
        return state_schema(self.prepared, self._stages, lockstep=self.blueprint.lockstep, compiled=self._compiled)

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The learner's state, fetched from its worker. Only while nothing is under way."""
        said = self._crew.ask(self._learning | self._standing if self.blueprint.lockstep else self._learning)
        state, snapshots = put_together(said, self._holder, self.template())
        trained = self._version * self.prepared.steps_per_learn
        ledger = self._books.ledger(trained, PATIENCE_SECONDS)
        document = {"samples": ledger.to_json(), "restarts": self._new_restarts(), "snapshots": snapshots}
        return state, document

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Grant ``learn_steps`` more learn steps; the result waits for them."""
        launcher = self._crew.launcher
        first = self._granted + 1
        self._granted += learn_steps
        launcher.account.run[OfRun.LIMIT] = self._granted
        launcher.ring()
        last = self._granted

        def fetch() -> Report:
            while self._version < last and self._bad is None:
                self._crew.hear(0.2)
            return self._report(first, last if self._bad is None else min(last, self._bad))

        return fetch

    def train_state(self) -> TrainState:
        """The learner's state. Raises WorkerFailed where it is of no use."""
        if self._bad is not None:
            raise WorkerFailed(f"learn step {self._bad} gave numbers that are not finite")
        learner = jax.eval_shape(self._stages.init, jax.ShapeDtypeStruct((), np.int32))
        (arrays,) = (said.arrays for said in self._crew.ask(self._learning) if said.body["side"] == self._holder)
        train: TrainState = from_words(arrays, learner)[0]
        return train

    def close(self) -> None:
        """End all workers; may be called twice."""
        self._crew.close()

    # ---- starting ---------------------------------------------------------------------------------------------------

    def _go_on(self, leaves: list[np.ndarray[Any, Any]] | None, version: int, ledger: Ledger) -> None:
        """From a state and the ledger as it was then: with new workers, or with those that are still alive."""
        self._resume_leaves, self._bad = leaves, None
        self._learned.clear()
        if self._crew.running and not self.blueprint.lockstep:
            self._revive(version, ledger)
            return
        self._books.go_back(ledger)
        self._begin(version)

    def _revive(self, version: int, ledger: Ledger) -> None:
        """New learners among producers that go on. What was trained on since the checkpoint is gone, and counted."""
        learning = self._crew.supervisor.learning
        self._crew.dismiss(learning)
        self._books.settle(ledger.trained)
        self._version = self._granted = version
        self._crew.launcher.account.run[OfRun.LIMIT] = version
        self._crew.start(learning)
        # Not for others that died at the same time: they may wait for what only learning sets free.
        self._crew.await_ready(set(learning))

    def _begin(self, version: int) -> None:
        crew = self._crew
        crew.gather(self._outfit.specs, {**self._outfit.told, "version": version})
        self._episodes = []  # those since the checkpoint will be played again
        self._version = self._granted = version
        account = crew.launcher.account
        account.run[OfRun.LIMIT] = version
        self._books.open(account, version if self.blueprint.lockstep else 0)
        self._lost = {}
        everyone = {worker.index for worker in self.blueprint.workers}
        stepping = {side.worker for side in self.blueprint.kind("env")} if self._lane_leaves else set()
        crew.start(stepping)  # first: act must know which environments could not be brought back
        crew.await_ready(stepping)
        crew.start(everyone - stepping)
        crew.await_ready(everyone)
        self._gauges.begin(account, crew.launcher.channels)

    def _beginning(self, worker: int) -> Beginning:
        """What a worker goes on from: learners from the saved state, in lockstep the others from where they stood."""
        kinds = {self.blueprint.sides[s].kind for s in self.blueprint.workers[worker].sides}
        leaves = (self._resume_leaves or []) if kinds & set(LEARNING) else []
        standing = self._lane_leaves if kinds & {"act", "actor"} else []
        words: dict[str, Any] = {"resumed": len(leaves), "standing": bool(standing), "lost": self._lost}
        if self._lane_leaves and not self._compiled and kinds & {"env", "actor"}:
            words["snapshots"] = self._snapshots
        return words, [*leaves, *standing]

    def _take(self, said: LinkMessage) -> None:
        """What a worker has said."""
        match said.kind:
            case "ready":
                self._lost |= said.body.get("lost") or {}
            case "learned":
                self._version = said.body["version"]
                self._learned[self._version] = said.body
                if not said.body["learned"] and self._bad is None:
                    self._bad = self._version
                self._lags.add(said.body["lags"])
            case "episodes":
                self._episodes += [tuple(episode) for episode in said.body["episodes"]]

    @property
    def _learning(self) -> set[int]:
        """The sides that learn. All are asked to save: one has the state, others may not have counted yet."""
        return {side.index for side in self.blueprint.sides if side.kind in LEARNING}

    @property
    def _holder(self) -> int:
        """The side that has the learner's state."""
        return min(self._learning)

    @property
    def _standing(self) -> set[int]:
        """The sides that know where lanes stand."""
        return {side.index for side in self.blueprint.sides if side.kind in ("env", "act", "actor")}

    # ---- reporting --------------------------------------------------------------------------------------------------

    def _report(self, first: int, last: int) -> Report:
        rows = [self._learned.pop(version) for version in range(first, last + 1)]
        metrics = {name: np.array([row["metrics"][name] for row in rows]) for name in rows[0]["metrics"]}
        episodes, self._episodes = self._episodes, []
        learned, rewards = all(row["learned"] for row in rows), all(row["rewards"] for row in rows)
        launcher = self._crew.launcher
        self._gauges.look(launcher.account, launcher.channels, last - first + 1)
        lags, figures = self._lags.figures(), self._gauges.figures(launcher.account)
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
            figures if self.blueprint.lockstep else figures | lags,
            self._gauges.streams(),
        )

    def _new_restarts(self) -> int:
        """Of workers, since it was last told."""
        told, self._told_restarts = self._told_restarts, self._crew.supervisor.restarts
        return self._told_restarts - told
