"""What to do when a worker starts, reports, fails, dies or hangs. Pure: an event in, instructions out.

a worker says an error          the run fails with it: the next life would meet it too
one of several learners does    it is doubted for a while: where another was killed, that is why; otherwise as above
one that was ready before does  while it starts again with others: it is tried again, as if it had died
dies before it was ever ready   the run fails, with the end of its log
one without the run's state     it is replaced; others go on
dies
a learner dies                  all learners are replaced, and go on from what was saved last
lockstep, any dies              everything is replaced and goes on from what was saved last, as if nothing happened
hangs                           it is killed, and so dies; before it was ever ready, the run fails
is slow                         it is named, and goes on
dies again and again            the run fails, where nothing was learned in between
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from weft.runtimes.workers.layout.blueprint import Blueprint


@dataclass(frozen=True)
class Ready:
    """A worker has made everything it needs."""

    worker: int


@dataclass(frozen=True)
class Failed:
    """A worker met an exception, and said so."""

    worker: int
    report: str


@dataclass(frozen=True)
class Died:
    """A worker is gone; ``how`` in words: ``was killed by SIGKILL``; ``killed`` if by a signal, and not by itself."""

    worker: int
    how: str
    killed: bool = False


@dataclass(frozen=True)
class Hung:
    """A worker has made no progress for too long; ``where`` in words, as far as it is known."""

    worker: int
    seconds: float
    where: str = ""


@dataclass(frozen=True)
class Slow:
    """A worker makes no progress, and is given ``limit`` seconds before it counts as hung."""

    worker: int
    seconds: float
    where: str
    limit: float


Event: TypeAlias = Ready | Failed | Died | Hung | Slow


@dataclass(frozen=True)
class Kill:
    """Kill -9."""

    worker: int


@dataclass(frozen=True)
class Replace:
    """Start the worker's next life."""

    worker: int


@dataclass(frozen=True)
class Recover:
    """Kill these and start their next lives from the last checkpoint."""

    workers: tuple[int, ...]


@dataclass(frozen=True)
class Fail:
    """End the run with this reason."""

    reason: str


@dataclass(frozen=True)
class Doubt:
    """End the run with this reason, unless a learner turns out to have died before long."""

    reason: str


@dataclass(frozen=True)
class Tell:
    """Warn the user."""

    text: str


Instruction: TypeAlias = Kill | Replace | Recover | Fail | Doubt | Tell

MAX_EARLY_DEATHS = 3
"""Lives in a row that may end by themselves before they were ready, once the worker has been ready before."""
MAX_EARLY_KILLS = 20
"""Likewise, where they were killed from outside."""
MAX_FRUITLESS_DEATHS = 5
"""Deaths of one worker by itself, or because it hung, without a learn step in between."""
MAX_FRUITLESS_KILLS = 40
"""Likewise, where it was killed from outside."""


@dataclass
class Supervisor:
    """Follows the workers of one blueprint; ``handle`` is its only way to learn anything."""

    blueprint: Blueprint
    restarts: int = 0
    ready: set[int] = field(default_factory=set)
    _been_ready: set[int] = field(default_factory=set)
    _early: dict[int, int] = field(default_factory=dict)
    _complaints: dict[int, str] = field(default_factory=dict)  # of workers that met an error
    _hung: set[int] = field(default_factory=set)
    _fruitless: dict[int, int] = field(default_factory=dict)  # deaths since the last learn step

    @property
    def learning(self) -> tuple[int, ...]:
        """The workers that hold the run's state."""
        return self.blueprint.publishing_workers()

    def handle(self, event: Event) -> list[Instruction]:
        """What to do now."""
        match event:
            case Ready(worker):
                self.ready.add(worker)
                self._been_ready.add(worker)
                self._early[worker] = 0
                return []
            case Failed(worker, report):
                return self._failed(worker, report)
            case Hung(worker, seconds, where):
                stands = f"worker {self._name(worker)} has made no progress for {seconds:.0f} s"
                where = f" ({where})" if where else ""
                if worker not in self._been_ready:
                    return [Fail(f"{stands} and is not ready{where}")]
                self._hung.add(worker)
                return [Tell(f"{stands}{where}: it is killed and replaced"), Kill(worker)]
            case Slow(worker, seconds, where, limit):
                stands = f"worker {self._name(worker)} has made no progress for {seconds:.0f} s"
                return [Tell(f"{stands}: {where}. It is replaced if that goes on for {limit:.0f} s (--hang-seconds)")]
            case Died(worker, how, killed):
                return self._died(worker, how, killed)

    def learned(self) -> None:
        """A learn step was made: the run makes progress in spite of deaths."""
        self._fruitless.clear()

    def recovered(self, workers: tuple[int, ...]) -> None:
        """The pool has killed these and starts their next lives."""
        for worker in workers:
            self.ready.discard(worker)
            self._complaints.pop(worker, None)

    def _failed(self, worker: int, report: str) -> list[Instruction]:
        reason, learning = f"worker {self._name(worker)} failed: {report}", self.blueprint.together(worker)
        together = len(learning) > 1
        if together and worker in self._been_ready and worker not in self.ready:
            return self._died(worker, f"failed: {report}", killed=False)
        self._complaints[worker] = reason
        # Learners are one program: where one is killed, the others meet an error in what they do together.
        if not together:
            return [Fail(reason)]
        if learning <= self._complaints.keys():
            return [Fail(next(text for other, text in self._complaints.items() if other in learning))]
        return [Doubt(reason)]

    def _died(self, worker: int, how: str, killed: bool) -> list[Instruction]:
        if worker in self._complaints:
            return []  # it has said why
        name = self._name(worker)
        if worker not in self._been_ready:
            return [Fail(f"worker {name} {how} before it was ready")]
        if worker not in self.ready:
            early = self._early[worker] = self._early.get(worker, 0) + 1
            if early >= (MAX_EARLY_KILLS if killed else MAX_EARLY_DEATHS):
                return [Fail(f"worker {name} {how} before it was ready, {early} times in a row")]
        killed, fruitless = killed and worker not in self._hung, self._fruitless.get(worker, 0) + 1
        self._hung.discard(worker)
        if fruitless >= (MAX_FRUITLESS_KILLS if killed else MAX_FRUITLESS_DEATHS):
            return [Fail(f"worker {name} {how}, {fruitless} times without a learn step in between: it is given up")]
        self._fruitless[worker] = fruitless
        self.ready.discard(worker)
        self.restarts += 1
        if self.blueprint.synchrony.still:
            everyone = tuple(w.index for w in self.blueprint.workers)
            return [Tell(f"worker {name} {how}: lockstep replaces all workers"), Recover(everyone)]
        if worker in self.learning:
            return [Tell(f"worker {name} {how}: all learners are replaced"), Recover(self.learning)]
        return [Tell(f"worker {name} {how}: it is replaced"), Replace(worker)]

    def _name(self, worker: int) -> str:
        return self.blueprint.workers[worker].name
