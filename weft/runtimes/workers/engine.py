"""A plan of several groups behind the Engine protocol: the run goes on as in one process, and does not see workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.types import TrainState, Tree
from weft.envs.guards import Trouble
from weft.envs.recut import cut_again
from weft.graph.role import role
from weft.runtimes.flow import flat_metrics
from weft.runtimes.loop.engine import Report, WorkerState
from weft.runtimes.prepare.config import Prepared
from weft.runtimes.watcher import Look, Looked, Seen
from weft.runtimes.workers.control.launcher import Launcher
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.control.pool import Beginning, WorkerPool
from weft.runtimes.workers.counting.gauges import Gauges
from weft.runtimes.workers.counting.lags import Lags
from weft.runtimes.workers.counting.ledger import PATIENCE_SECONDS, AccountLedger
from weft.runtimes.workers.episode_order import EpisodeOrder
from weft.runtimes.workers.lane_checkpoint import from_words
from weft.runtimes.workers.layout.launch_spec import LaunchSpec
from weft.runtimes.workers.saving import Saving, Words, lanes_words
from weft.telemetry.ledger import Ledger

NUDGE_SECONDS = 1.0
"""How long one of several learners may wait at its limit for another that does not get on."""


class WorkersEngine:
    """Runs the workers of a launch spec. Learning goes on between ``advance`` and the report: it is asynchronous."""

    def __init__(
        self,
        prepared: Prepared,
        launch: LaunchSpec,
        logs: Path,
        hang_seconds: float,
        launcher: Callable[..., Any] = Launcher,
    ) -> None:
        self.warn: Callable[[str], None] = lambda text: None  # replaced by what shows it
        self.check: Callable[[], None] = lambda: None
        self.inspect: Path | None = None
        self.on_workers: Callable[[], None] = lambda: None
        self._logs, self._hang_seconds, self._launcher = logs, hang_seconds, launcher
        self._troubles: list[Trouble] = []
        self._looks: list[Look] = []  # of what looks on, since the last report
        self._looked: dict[str, int] = {}  # the version that each fragment of these has looked at last
        self._figures: dict[str, float] = {}  # what fragments that do not learn have measured, as it was last
        self.lay_out(prepared, launch)

    def lay_out(self, prepared: Prepared, launch: LaunchSpec) -> None:
        """Have workers by this launch spec from the next ``start`` or ``resume`` on; there are none now."""
        self.prepared, self.blueprint, self._launch = prepared, launch.blueprint, launch
        self._saving = Saving(prepared, launch.blueprint)
        self._pool = WorkerPool(
            launch.blueprint,
            self._logs,
            self._hang_seconds,
            begin=self._beginning,
            take=self._take,
            warn=lambda text: self.warn(text),
            check=lambda: self.check(),
            launch=self._launcher,
            changed=lambda: self.on_workers(),
        )
        self._publishers = self.blueprint.publishers
        self._versions = dict.fromkeys(self._publishers, 0)
        self._granted = 0
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self._publishers}
        self._episodes = self._no_episodes()
        self._states: dict[str, Words] = {}  # what the next life of a side begins from, by fragment
        self._delivered: dict[int, int] = {}  # steps that had come to the states of stores there, by side
        self._lanes: dict[str, Words] = {}  # where lanes stood
        self._snapshots: dict[str, Any] = {}
        self._lost: dict[str, list[int]] = {}
        self._gauges = Gauges(
            launch.blueprint,
            launch.specs,
            cores=prepared.machine.cores,
            warm_up=prepared.warm_up,
        )
        self._lags = Lags()
        self._ledger = AccountLedger(launch.blueprint)
        self._reported_restarts = 0

    @property
    def asynchronous(self) -> bool:
        """Always."""
        return True

    @property
    def _version(self) -> int:
        """Learn steps that every learner has made."""
        return min(self._versions.values())

    def start(self) -> None:
        """Begin from nothing: start every worker, and wait until all are ready."""
        self._lanes, self._snapshots, self._states = {}, {}, {}
        nothing = {"samples": Ledger().to_json(), "trained": {}, "env_steps": 0, "steps": {}}
        self._go_on(dict.fromkeys(self._publishers, 0), nothing)

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from a saved state: exactly in lockstep, else with environments that begin anew."""
        self._states = self._saving.states_words(tree)
        self._lanes, self._snapshots = lanes_words(tree), self._cut_again(document)
        states = {name: tree.fragments[self._kept(name)] for name in self._publishers}
        self._go_on({name: int(np.asarray(state.step)) for name, state in states.items()}, document)
        if not self._lanes:
            return [f"environment {i}" for i in range(self.prepared.envs)]
        return [f"environment {self.blueprint.lanes[int(k)].first + r}" for k, rows in self._lost.items() for r in rows]

    def template(self) -> Tree:
        """The saved state's structure, shapes and dtypes."""
        return self._saving.template()

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """The states of all fragments, fetched from their workers. Only while nothing is under way."""
        while True:
            before = dict(self._versions)
            messages = self._pool.ask(self.blueprint.saving())
            if before == self._versions:  # else something that had begun before was learned from meanwhile
                break
        state, snapshots = self._saving.put_together(messages)
        self._states = self._saving.states_words(state)
        self._delivered = {int(k): n for m in messages for k, n in m.body.get("delivered", {}).items()}
        self._pool.launcher.catch_up()
        ledger = self._ledger.ledger(self._least_trained, PATIENCE_SECONDS, self._delivered)
        for rows in self._rows.values():  # what was learned since the last report is in ``learn_steps``
            rows.clear()
        document = {
            "learn_steps": self._version,
            "samples": ledger.to_json(),
            "trained": self._ledger.trained(self._delivered),
            "env_steps": self._ledger.env_steps(),
            "steps": self._ledger.steps(),
            "restarts": self._new_restarts(),
            "troubles": [list(trouble) for trouble in self._troubles],
            "snapshots": snapshots,
            "cut": self._cut,
        }
        self._troubles = []
        return state, document

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Grant ``learn_steps`` more learn steps; the result waits for them."""
        self._granted = max(self._granted, self._version) + learn_steps
        self._pool.launcher.tell_run(limit=self._granted)
        last = self._granted

        def fetch() -> Report:
            reached, since = self._version, time.monotonic()
            while self._version < last:
                self._pool.hear(0.2)
                ahead = max(self._versions.values())
                if self._version > reached:
                    reached, since = self._version, time.monotonic()
                elif time.monotonic() - since > NUDGE_SECONDS and ahead >= self._granted:
                    # A learner at its limit holds slots that the environments need for another, which has dropped more.
                    self._granted, since = ahead + 1, time.monotonic()
                    self._pool.launcher.tell_run(limit=self._granted)
            if self.blueprint.synchrony.in_order and last == self._granted:
                # Else what is still on its way comes with the next report, in order.
                self._pool.hear_all()
            return self._report()

        return fetch

    def last_looks(self) -> tuple[Look, ...]:
        """Hears workers for a moment. Raises WorkerFailed and StateLost."""
        self._pool.hear(0.2)
        return self._new_looks()

    def workers(self) -> list[WorkerState]:
        """Every worker as it is now, with how busy its sides are of late."""
        states = self._pool.states()
        if not self._pool.running:
            return states
        busy = self._gauges.busy_sides(self._pool.launcher.account)
        sides = [worker.sides for worker in self.blueprint.workers]
        return [
            state._replace(busy=tuple(round(busy.get(s, 0.0), 3) for s in of)) if busy else state
            for state, of in zip(states, sides, strict=True)
        ]

    def streams_of_late(self) -> dict[str, dict[str, float]]:
        """What passed between workers in the last few seconds."""
        return self._gauges.of_late()

    def train_states(self) -> dict[str, TrainState]:
        """The learners' states."""
        holding = {side.index for side in self.blueprint.publishing}
        state, _ = self._saving.put_together(self._pool.ask(holding))
        kept = {self._kept(name) for name in self._publishers}
        return {name: found for name, found in state.fragments.items() if name in kept}

    def progress(self) -> int | None:
        """The pool watches its workers."""
        return None

    def awaited(self) -> str:
        """The workers that do not answer, or what is under way."""
        return self._pool.awaited() or "the learn steps under way"

    def close(self) -> None:
        """End all workers; may be called twice."""
        self._pool.close()

    @property
    def _least_trained(self) -> int:
        """Samples that learners must have counted by now; what a store in another worker took, it counts itself."""
        if self._ledger.stores:
            return 0
        return self._version // self.prepared.calls_for_each_unroll * self.prepared.steps_per_learn

    @property
    def _cut(self) -> list[list[int]]:
        """How the environments are cut into lanes: of each the first one, and how many."""
        return [[lane.first, lane.rows] for lane in self.blueprint.lanes]

    def _cut_again(self, document: dict[str, Any]) -> dict[str, Any]:
        """The snapshots of a saved state, by the lanes of now: those of then may have been others."""
        snapshots: dict[str, Any] = document["snapshots"]
        before = document.get("cut", self._cut)
        return cut_again(snapshots, before, self._cut) if snapshots and before != self._cut else snapshots

    def _kept(self, name: str) -> str:
        return self._saving.kept_as(name)

    # ---- starting ---------------------------------------------------------------------------------------------------

    def _go_on(self, versions: dict[str, int], document: dict[str, Any]) -> None:
        """From a state and the counts as they were then: with new workers, or with those that are still alive."""
        for rows in self._rows.values():
            rows.clear()
        if self._pool.running and not self.blueprint.synchrony.still:
            self._delivered = self._ledger.delivered_until(document["trained"])
            self._revive(versions, document)
            return
        self._delivered = {}
        self._ledger.go_back(Ledger.from_json(document["samples"]), document["trained"], document["env_steps"])
        self._begin(versions, document["steps"])

    def _revive(self, versions: dict[str, int], document: dict[str, Any]) -> None:
        """New learners among producers that go on. What was trained on since the checkpoint is gone, and counted."""
        learning = self._pool.supervisor.learning
        self._pool.dismiss(learning)
        self._ledger.settle(document["trained"])
        self._set_versions(versions)
        self._pool.launcher.tell_run(limit=self._granted)
        self._pool.start(learning)
        # Not for others that died at the same time: they may wait for what only learning sets free.
        self._pool.await_ready(set(learning))

    def _begin(self, versions: dict[str, int], steps: dict[str, list[int]]) -> None:
        pool = self._pool
        self._set_versions(versions)
        version = self._version
        pool.gather(self._launch.specs, {**self._launch.common, "version": version})
        self._episodes = self._no_episodes()  # those since the checkpoint will be played again
        account = pool.launcher.account
        account.set_run(limit=version)
        if self.prepared.dials is not None:
            self.prepared.dials.move_to(account.dials)
        self._ledger.open(account, steps, version)
        self._lost = {}
        everyone = {worker.index for worker in self.blueprint.workers}
        alone = {s.worker for s in self.blueprint.sides if role(s.role).makes_steps and len(s.fragments) == 1}
        stepping = alone if self._lanes else set()
        pool.start(stepping)  # first: act must know which environments could not be brought back
        pool.await_ready(stepping)
        pool.start(everyone - stepping)
        pool.await_ready(everyone)
        self._gauges.begin(account)

    def _set_versions(self, versions: dict[str, int]) -> None:
        """Each learner's own: where there are several, one may have been ahead when they were saved."""
        self._versions, self._granted = dict(versions), min(versions.values())
        watching = [name for k in self.blueprint.watching for name in self.blueprint.sides[k].fragments]
        self._looked = {name: min(self._looked.get(name, self._version), self._version) for name in watching}

    def _beginning(self, worker: int) -> Beginning:
        """What a worker goes on from: the saved states of its fragments, in lockstep also where its lanes stood."""
        sides = [self.blueprint.sides[s] for s in self.blueprint.workers[worker].sides]
        names = [side.state_name(name) for side in sides for name in side.fragments]
        states = [(name, self._states[name]) for name in names if name in self._states]
        for side in self._ledger.stores:
            if side in sides:
                self._ledger.settle_store(side, self._delivered.get(side.index, 0))
        acts = any(role(side.role).every_step for side in sides)
        lanes = list(self._lanes.items()) if acts else []
        words: dict[str, Any] = {
            "states": [[name, len(leaves)] for name, leaves in states],
            "lanes": [[key, len(leaves)] for key, leaves in lanes],
            "lost": self._lost,
            "looked": self._looked,
            "inspect": None if self.inspect is None else str(self.inspect.absolute()),
        }
        if self._snapshots and any(role(side.role).makes_steps for side in sides):
            words["snapshots"] = self._snapshots
        return words, [leaf for _, leaves in (*states, *lanes) for leaf in leaves]

    def _take(self, message: LinkMessage) -> None:
        """A worker has sent a message."""
        match message.topic:
            case "ready":
                self._lost |= message.body.get("lost") or {}
            case "learned":
                name = message.body["fragment"]
                self._versions[name] = message.body["version"]
                self._rows[name].append(message.body)
                self._lags.add(message.body["lags"])
            case "troubles":
                self._troubles += [Trouble(*values) for values in message.body["troubles"]]
            case "figures":
                self._figures |= message.body
            case "looked":
                self._take_look(message)
            case "episodes":
                self._episodes.take(message.body)

    def _take_look(self, message: LinkMessage) -> None:
        """What looks on has found something."""
        body, at = message.body, 0
        params: dict[str, Tree] = {}
        for source, count in body["weights"]:
            like = self._saving.template().fragments[self._kept(source)].params
            params[self._kept(source)] = from_words(message.arrays[at : at + count], like)
            at += count
        seen, looked = Seen(body["version"], body["env_steps"], params), Looked(body["figures"], body["score"])
        self._looks.append(Look(body["fragment"], seen, looked, body["seconds"]))
        self._looked[body["fragment"]] = body["version"]

    def _new_looks(self) -> tuple[Look, ...]:
        looks, self._looks = tuple(self._looks), []
        return looks

    # ---- reporting --------------------------------------------------------------------------------------------------

    def _report(self) -> Report:
        """The learn steps that every learner has made and that no report had yet."""
        calls = min(sum(row["calls"] for row in rows) for rows in self._rows.values())
        taken: dict[str, list[dict[str, Any]]] = {}
        for name, rows in self._rows.items():
            count = reached = 0
            while reached < calls:
                reached, count = reached + rows[count]["calls"], count + 1
            taken[name], self._rows[name] = rows[:count], rows[count:]
        columns = {
            name: {key: np.array([row["metrics"][key] for row in rows]) for key in rows[0]["metrics"]}
            for name, rows in taken.items()
            if rows
        }
        reported = [row for rows in taken.values() for row in rows]
        troubles, self._troubles = tuple(self._troubles), []
        launcher = self._pool.launcher
        self._gauges.look(launcher.account, calls)
        lags, figures = self._lags.figures(), self._gauges.figures(launcher.account) | self._figures
        return Report(
            calls,
            self._ledger.env_steps(),
            flat_metrics(self._publishers, columns),
            self._episodes.give(),
            all(row["learned"] for row in reported),
            all(row["rewards"] for row in reported),
            False,
            self._gauges.shares(),
            samples=self._ledger.ledger(self._least_trained),
            restarts=self._new_restarts(),
            figures=figures if self.blueprint.synchrony.still else figures | lags,
            looks=self._new_looks(),
            streams=self._gauges.streams(),
            learned=np.array(
                [all(row["learned"] for row in step) for step in zip(*taken.values(), strict=False)], np.bool_
            ),
            troubles=troubles,
        )

    def _no_episodes(self) -> EpisodeOrder:
        return EpisodeOrder(
            len(self.prepared.series),
            len(self.blueprint.lanes),
            in_order=self.blueprint.synchrony.in_order,
            by_step=self.prepared.source.pure is not None,
        )

    def _new_restarts(self) -> int:
        """Of workers, since it was last reported."""
        reported, self._reported_restarts = self._reported_restarts, self._pool.supervisor.restarts
        return self._reported_restarts - reported
