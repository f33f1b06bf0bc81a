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
from weft.runtimes.engine import Episode, Report, StateLost, is_key, make_stages
from weft.runtimes.processes.account import OfLane, OfLearner, OfRun
from weft.runtimes.processes.blueprint import Blueprint
from weft.runtimes.processes.gauges import Gauges
from weft.runtimes.processes.launcher import Heard, Launcher, how_it_ended
from weft.runtimes.processes.schemas import channel_specs
from weft.runtimes.processes.supervisor import (
    Died,
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
from weft.telemetry.ledger import Ledger

START_SECONDS = 120.0
"""What workers have to get ready: JAX loads, environments are made."""
READINGS = 50
"""How often the account is read, a millisecond apart, until its words are of one moment."""


class ProcessState(NamedTuple):
    """What a checkpoint holds: the learner's state. Environments begin anew."""

    train: TrainState
    fragments: tuple[Tree, ...]


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
        self._saved: list[list[np.ndarray[Any, Any]]] = []
        self._resume_leaves: list[np.ndarray[Any, Any]] | None = None
        self._gauges = Gauges(
            blueprint,
            self._specs,
            unroll=prepared.algorithm.unroll,
            cores=prepared.machine.cores,
            warm_up=prepared.warm_up,
        )
        self._lags: dict[int, int] = {}
        self._base = Ledger()
        self._told_restarts = 0
        self._first_unroll = 0

    @property
    def asynchronous(self) -> bool:
        """Always."""
        return True

    def start(self) -> None:
        """Begin from nothing: start every worker, and wait until all are ready."""
        self._go_on(None, 0, Ledger())

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from a saved state. Environments begin anew: what they were doing is not saved."""
        leaves = [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]
        self._go_on(leaves, int(np.asarray(tree.train.step)), Ledger.from_json(document["samples"]))
        return [f"environment {i}" for i in range(self.prepared.envs)]

    def template(self) -> Tree:
        """The saved state's structure, shapes and dtypes."""
        return ProcessState(*jax.eval_shape(self._stages.init, jax.ShapeDtypeStruct((), np.int32)))

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The learner's state, fetched from its worker. Only while nothing is under way."""
        leaves = self._fetch_state()
        likes, structure = jax.tree.flatten(self.template())
        back = [
            jax.random.wrap_key_data(jax.numpy.asarray(leaf)) if is_key(like) else leaf
            for leaf, like in zip(leaves, likes, strict=True)
        ]
        return jax.tree.unflatten(structure, back), {"samples": self.samples().to_json()}

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
        state: ProcessState = self.saved()[0]
        return state.train

    def close(self) -> None:
        """End all workers; may be called twice."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    # ---- starting ---------------------------------------------------------------------------------------------------

    def _go_on(self, leaves: list[np.ndarray[Any, Any]] | None, version: int, ledger: Ledger) -> None:
        """From a state and the ledger as it was then: with new workers, or with those that are still alive."""
        self._resume_leaves = leaves
        self._learned.clear()
        if self._launcher is not None and not self.blueprint.lockstep:
            self._revive(version, ledger)
            return
        self._base = ledger
        self._base.drop("interrupted", ledger.in_flight)
        self._base.in_flight = 0
        self._begin(version)

    def _revive(self, version: int, ledger: Ledger) -> None:
        """New learners among producers that go on. What was trained on since the checkpoint is gone, and counted."""
        launcher, learning = self._running(), self.supervisor.learning
        for worker in learning:
            launcher.end(worker)
        self._settle(ledger.trained - self._base.trained)
        self._version = self._granted = version
        launcher.account.run[OfRun.LIMIT] = version
        self.supervisor.recovered(learning)
        coordinator = launcher.reserve_port() if self.blueprint.learners > 1 else None
        for worker in learning:
            self._start(worker, coordinator)
        # Not for others that died at the same time: they may wait for what only learning sets free.
        self._await_ready(set(learning))

    def _settle(self, trained: int) -> None:
        """Set the learners' account to ``trained`` steps; all else that was released has died with them."""
        account, length = self._running().account, self.prepared.algorithm.unroll
        released = 0
        for lane in self.blueprint.lanes:
            channel = self._running().channels.get(f"unroll/{lane.index}")
            known = int(account.lanes[lane.index][OfLane.RELEASED])
            count = max(known, channel.released) if channel is not None else known
            released += count * lane.rows * length
        released -= self._gradients_on_their_way()
        words = account.learners
        if not self.blueprint.central:  # else the rows before the last are of grad sides that are alive, and count on
            words[:, [OfLearner.TRAINED, OfLearner.DIED]] = 0
        words[-1, OfLearner.TRAINED], words[-1, OfLearner.DIED] = trained, 0
        words[-1, OfLearner.DIED] = released - int(words[:, list(OfLearner)].sum())

    def _gradients_on_their_way(self) -> int:
        """Environment steps whose gradients apply has not released: each message is of one grad side's share."""
        channels = self._running().channels
        waiting = sum(channel.unreleased for name, channel in channels.items() if name.startswith("gradients/"))
        return waiting * self.prepared.envs // self.blueprint.learners * self.prepared.algorithm.unroll

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
        self._number_unrolls(version if self.blueprint.lockstep else 0)
        coordinator = self._launcher.reserve_port() if self.blueprint.learners > 1 else None
        for worker in self.blueprint.workers:
            self._start(worker.index, coordinator)
        self._await_ready({worker.index for worker in self.blueprint.workers})
        self._gauges.begin(self._launcher.account, self._launcher.channels)

    def _number_unrolls(self, first: int) -> None:
        """Lanes begin with unroll ``first``. In lockstep its number says which params make it, and its noise."""
        lanes, self._first_unroll = self._running().account.lanes, first
        lanes[:, OfLane.COMMITTED] = lanes[:, OfLane.RELEASED] = first
        lanes[:, OfLane.PRODUCED] = first * self.blueprint.lanes[0].rows * self.prepared.algorithm.unroll

    def _start(self, worker: int, coordinator: str | None) -> None:
        launcher = self._running()
        kinds = {self.blueprint.sides[s].kind for s in self.blueprint.workers[worker].sides}
        leaves = self._resume_leaves if kinds & {"learn", "apply"} else None
        more = {"resumed": leaves is not None, "coordinator": coordinator}
        launcher.start(worker, more, leaves or [])

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

    def _take(self, heard: Heard) -> list[Instruction]:
        said = heard.said
        if said is None:
            killed = heard.code is not None and heard.code < 0
            return self.supervisor.handle(Died(heard.worker, how_it_ended(heard.code), killed))
        match said.kind:
            case "ready":
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
                self._saved.append(said.arrays)
        return []

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Fail(reason):
                raise WorkerFailed(f"{reason}\nLogs of all workers are in {self.logs}.")
            case Tell(text):
                self.warn(text)
            case Kill(worker):
                self._running().kill(worker)
            case Replace(worker):
                self._start(worker, None)
            case Recover():
                raise StateLost

    def _fetch_state(self) -> list[np.ndarray[Any, Any]]:
        """The learner's state from its worker. Raises StateLost where that is gone."""
        holder = self.supervisor.learning[0]
        self._saved.clear()
        self._running().say(holder, "save")
        while not self._saved:
            if holder not in self.supervisor.ready:
                raise StateLost
            self._pump(0.2)
        return self._saved.pop()

    # ---- reporting --------------------------------------------------------------------------------------------------

    def _report(self, first: int, last: int) -> Report:
        rows = [self._learned.pop(version) for version in range(first, last + 1)]
        metrics = {name: np.array([row["metrics"][name] for row in rows]) for name in rows[0]["metrics"]}
        episodes, self._episodes = self._episodes, []
        learned, rewards = all(row["learned"] for row in rows), all(row["rewards"] for row in rows)
        restarts, self._told_restarts = self.supervisor.restarts - self._told_restarts, self.supervisor.restarts
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
            self.samples(),
            restarts,
            self._figures(),
            self._gauges.streams(),
        )

    def samples(self) -> Ledger:
        """The ledger of the whole run, read from the account: each count from where it happens.

        Workers go on counting meanwhile, one word after another: what was read in between is read again.
        """
        for _ in range(READINGS):
            ledger = self._read_samples()
            if ledger.balanced:
                break
            time.sleep(0.001)
        return ledger

    def _read_samples(self) -> Ledger:
        account = self._running().account
        rows, length = self.blueprint.lanes[0].rows, self.prepared.algorithm.unroll
        lanes, learners = account.lanes, account.learners
        produced, lost = int(lanes[:, OfLane.PRODUCED].sum()), int(lanes[:, OfLane.LOST].sum())
        committed = int(lanes[:, OfLane.COMMITTED].sum()) * rows * length
        released = int(lanes[:, OfLane.RELEASED].sum()) * rows * length
        before = self._first_unroll * len(lanes) * rows * length  # numbered, and made by workers that are gone
        produced, committed, released = produced - before, committed - before, released - before
        ledger = Ledger(produced, int(learners[:, OfLearner.TRAINED].sum()))
        ledger.in_flight = (produced - lost - committed) + (committed - released)  # half built, and on their way
        ledger.in_flight += self._gradients_on_their_way()
        ledger.drop("worker died", lost + int(learners[:, OfLearner.LOST].sum()))
        ledger.drop("stale", int(learners[:, OfLearner.STALE].sum()))
        ledger.drop("learner died", int(learners[:, OfLearner.DIED].sum()))
        ledger.merge(self._base)
        return ledger

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
