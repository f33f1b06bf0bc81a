"""The workers of a run while it lasts: started, heard, watched, replaced. The supervisor decides; this executes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from weft.core.errors import WorkerFailed
from weft.runtimes.loop.engine import StateLost, WorkerState
from weft.runtimes.workers.control.endings import how_it_ended, was_killed
from weft.runtimes.workers.control.launcher import Heard, Launcher, NoRoom
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.control.supervisor import (
    Died,
    Doubt,
    Fail,
    Failed,
    Homeless,
    Hung,
    Instruction,
    Kill,
    Ready,
    Recover,
    Replace,
    Slow,
    Supervisor,
    Tell,
)
from weft.runtimes.workers.control.watch import Kind, Stuck, Watch
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.streams.channel import ChannelSpec

DOUBT_SECONDS = 3.0
"""How long to wait after an error of one of several learners: the death of another may be its cause."""

Beginning: TypeAlias = "tuple[dict[str, Any], list[np.ndarray[Any, Any]]]"
"""What a worker's next life is told: words, and arrays."""


class WorkerPool:
    """The workers of one blueprint, over all of their lives.

    ``begin`` gives what a worker's next life is told; ``take`` gets whatever a worker says, and ``warn`` what the user
    should know; ``check`` is called while workers start, and may raise; ``changed`` after one has started, is ready or
    is gone. Logs go to the folder ``logs``. ``launch`` makes the launcher: of this host, or one over several.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        logs: Path,
        hang_seconds: float,
        begin: Callable[[int], Beginning],
        take: Callable[[LinkMessage], None],
        warn: Callable[[str], None],
        check: Callable[[], None] = lambda: None,
        launch: Callable[..., Any] = Launcher,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.blueprint, self.logs, self.hang_seconds = blueprint, logs, hang_seconds
        self.supervisor = Supervisor(blueprint)
        self._begin, self._take, self._warn, self._check = begin, take, warn, check
        self._launch = launch
        self._changed = changed
        self._launcher: Launcher | None = None
        self._watch = Watch(blueprint, hang_seconds)
        self._saved: dict[int, LinkMessage] = {}
        self._where: dict[int, str] = {}  # what workers said of where they are stuck
        self._ready_at: dict[int, float] = {}  # by time.monotonic()
        self._doubt: tuple[float, str] | None = None  # when the run is to fail, and why
        self._failed = ""  # why it has

    @property
    def running(self) -> bool:
        """Whether there are workers."""
        return self._launcher is not None

    @property
    def launcher(self) -> Launcher:
        """Holds their processes, channels and account; only while they run."""
        assert self._launcher is not None
        return self._launcher

    def gather(self, specs: Mapping[str, ChannelSpec], common: Mapping[str, Any]) -> None:
        """Make what a new set of workers needs, in place of any that there is; ``start`` starts them."""
        self.close()
        self.supervisor.recovered(tuple(worker.index for worker in self.blueprint.workers))
        self._watch, self._doubt = Watch(self.blueprint, self.hang_seconds), None
        self._launcher = self._launch(self.blueprint, specs, common, self.logs)
        assert self._launcher is not None
        self._launcher.warn = self._warn

    def dismiss(self, workers: tuple[int, ...]) -> None:
        """End those of these that are alive; the others go on."""
        for worker in workers:
            self.launcher.end(worker)
        self.supervisor.recovered(workers)
        self._doubt = None

    def start(self, workers: Iterable[int]) -> None:
        """Start the next lives of these. Does not wait until they are ready."""
        workers = sorted(workers)
        programs = {frozenset(self.blueprint.together(worker)) for worker in workers} - {frozenset()}
        addresses = {program: self.launcher.reserve_port(program) for program in programs}
        for worker in workers:
            words, arrays = self._begin(worker)
            coordinator = addresses.get(frozenset(self.blueprint.together(worker)))
            more = {**words, "coordinator": coordinator, "hang_seconds": self.hang_seconds}
            self._where.pop(worker, None)
            try:
                self.launcher.start(worker, more, arrays)
            except NoRoom as lost:
                for instruction in self.supervisor.handle(Homeless(worker, str(lost))):
                    self._do(instruction)
        self._changed()

    def await_ready(self, workers: set[int]) -> None:
        """Wait until these are ready, for as long as they make progress. Raises WorkerFailed and StateLost."""
        while not workers <= self.supervisor.ready | self.supervisor.given_up:
            self.hear(0.2)
            self._check()

    def states(self) -> list[WorkerState]:
        """Every worker as it is now, how busy it is left out."""
        found = []
        for worker in self.blueprint.workers:
            child = self._launcher.children.get(worker.index) if self._launcher is not None else None
            if child is None:
                state = "given up" if worker.index in self.supervisor.given_up else "gone"
            else:
                state = "ready" if worker.index in self.supervisor.ready else "starting"
            stages = tuple(self.blueprint.sides[side].stage for side in worker.sides)
            life, pid = (child.life, child.pid) if child is not None else (0, 0)
            found.append(WorkerState(worker.name, stages, (), state, life, pid, worker.device))
        return found

    def awaited(self) -> str:
        """The workers without progress for a while, and what they are in. May be called by another thread."""
        return ", ".join(f"worker {self.blueprint.workers[w].name} ({kind.value})" for w, kind in self._watch.idle())

    def hear_all(self) -> None:
        """Hear what workers have sent by now; waits for nothing more. Raises WorkerFailed and StateLost."""
        while self.launcher.has_words():
            self.hear(0)

    def hear(self, timeout: float) -> None:
        """Hear workers for up to ``timeout`` seconds, and act on it. Raises WorkerFailed and StateLost."""
        instructions: list[Instruction] = []
        alive = self.launcher.watched
        for stuck in self._watch.stuck(self.launcher.account.sides, self.supervisor.ready, alive):
            instructions += self.supervisor.handle(self._judged(stuck))
        for heard in self.launcher.hear(timeout):
            instructions += self._follows(heard)
            if heard.message is None or heard.message.topic == "ready":
                self._changed()
        # Recover last: it leaves by an exception, and other workers that died at the same time must be replaced too.
        for instruction in sorted(instructions, key=lambda i: isinstance(i, Recover)):
            self._do(instruction)
        if self._doubt is not None and time.monotonic() > self._doubt[0]:
            self._do(Fail(self._doubt[1]))

    def ask(self, sides: set[int]) -> list[LinkMessage]:
        """What these sides have to save, in order, once they are still. Raises StateLost where a learner is gone.

        Others that die meanwhile are replaced, and their next lives asked, unless all stands still. Raises WorkerFailed
        where the run has failed: a side might wait for ever for a worker that is gone.
        """
        if self._failed:
            raise WorkerFailed(self._failed)
        workers = {self.blueprint.sides[side].worker for side in sides}
        must_stay = workers if self.blueprint.synchrony.still else workers & set(self.supervisor.learning)
        self._saved.clear()
        asked: dict[int, int] = {}  # the life of each that was asked
        while not sides <= set(self._saved):
            if not must_stay <= self.supervisor.ready:
                raise StateLost
            for worker in workers & self.supervisor.ready:
                life = self.launcher.children[worker].life
                if asked.get(worker) != life:
                    asked[worker] = life
                    self.launcher.say(worker, "save", {"sides": sorted(sides)})
            self.hear(0.2)
        return [self._saved[side] for side in sorted(sides)]

    def close(self) -> None:
        """End all workers; may be called twice."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    def _judged(self, stuck: Stuck) -> Hung | Slow:
        said = "" if stuck.kind is Kind.FROZEN else self._where.get(stuck.worker)
        where = said or stuck.kind.value
        if stuck.final:
            return Hung(stuck.worker, stuck.seconds, where)
        return Slow(stuck.worker, stuck.seconds, where, stuck.limit)

    def _follows(self, heard: Heard) -> list[Instruction]:
        message = heard.message
        if message is None:
            lived = time.monotonic() - self._ready_at.pop(heard.worker, time.monotonic())
            killed = was_killed(heard.code) or bool(heard.lost)
            how = f"was lost with host {heard.lost}" if heard.lost else how_it_ended(heard.code)
            last_words = "" if killed else heard.last_words or self.launcher.last_words(heard.worker)
            return self.supervisor.handle(Died(heard.worker, how, killed, lived, last_words))
        self._take(message)
        match message.topic:
            case "ready":
                self._ready_at[heard.worker] = time.monotonic()
                if self.launcher.children[heard.worker].life:  # it has died before, and may again
                    self.launcher.keep_spare(heard.worker)
                return self.supervisor.handle(Ready(heard.worker))
            case "error":
                text, trace = message.body["text"] or message.body["error"], message.body["traceback"]
                return self.supervisor.handle(Failed(heard.worker, f"{text}\n{trace}" if trace else text))
            case "family":
                self.launcher.adopt(heard.worker, [(pid, began) for pid, began in message.body["processes"]])
            case "where":
                self._where[heard.worker] = message.body["text"]
            case "learned":
                self.supervisor.learned()
            case "saved":
                self._saved[message.body["side"]] = message
        return []

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Fail(reason):
                self._failed = f"{reason}\nLogs of all workers are in {self.logs}."
                raise WorkerFailed(self._failed)
            case Doubt(reason):
                self._doubt = self._doubt or (time.monotonic() + DOUBT_SECONDS, reason)
            case Tell(text):
                self._warn(text)
            case Kill(worker):
                self.launcher.kill(worker)
            case Replace(worker):
                self.start([worker])
            case Recover():
                raise StateLost
