"""What to do when a worker starts, reports, fails, dies or hangs. Pure: an event in, instructions out.

a worker says an error          the run fails with it: the next life would meet it too
one of several learners does    it is doubted for a while: where another was killed, that is why; otherwise as above
one that was ready before does  while it starts again with others: it is tried again, as if it had died
dies before it was ever ready   the run fails, with the end of its log
one without the run's state     it is replaced; others go on
dies
a learner dies                  all learners are replaced, and go on from what was saved last
one that only looks on dies     it is replaced, in lockstep too; nothing is lost
lockstep, any dies              everything is replaced and goes on from what was saved last, as if nothing happened
hangs                           it is killed, and so dies; before it was ever ready, the run fails
is slow                         it is named, and goes on
dies again and again            the run fails, where nothing was learned in between
crashes soon, again and again   it is given up and the others go on, where they do what it did; otherwise the run fails
is lost with its host           it is replaced, on another host; where none has room, as one that crashes too often
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
    """A worker is gone; ``how`` in words: ``was killed by SIGKILL``; ``killed`` if by a signal, and not by itself.

    ``lived`` is the time since it was ready, in seconds, and ``last_words`` the end of its log, where that says why.
    """

    worker: int
    how: str
    killed: bool = False
    lived: float = float("inf")
    last_words: str = ""


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


@dataclass(frozen=True)
class Homeless:
    """A worker was lost with its ``host``, and no other has room for it."""

    worker: int
    host: str


Event: TypeAlias = Ready | Failed | Died | Hung | Slow | Homeless


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
MAX_FAST_CRASHES = 3
"""Lives in a row that may end by themselves soon after they were ready."""
FAST_SECONDS = 30.0
"""What is soon."""


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
    _fast: dict[int, int] = field(default_factory=dict)  # crashes in a row soon after it was ready
    given_up: set[int] = field(default_factory=set)  # crashed so often that they are not replaced

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
            case Died():
                return self._died(event)
            case Homeless(worker, host):
                text = f"worker {self._name(worker)} was lost with host {host}, and no other host has room for it"
                return self._without(worker, text)

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
            return self._died(Died(worker, f"failed: {report}"))
        self._complaints[worker] = reason
        # Learners are one program: where one is killed, the others meet an error in what they do together.
        if not together:
            return [Fail(reason)]
        if learning <= self._complaints.keys():
            return [Fail(next(text for other, text in self._complaints.items() if other in learning))]
        return [Doubt(reason)]

    def _died(self, died: Died) -> list[Instruction]:
        worker, how, killed = died.worker, died.how, died.killed
        if worker in self._complaints:
            return []  # it has said why
        name = self._name(worker)
        if worker not in self._been_ready:
            return [Fail(f"worker {name} {how} before it was ready")]
        if worker not in self.ready:
            early = self._early[worker] = self._early.get(worker, 0) + 1
            if early >= (MAX_EARLY_KILLS if killed else MAX_EARLY_DEATHS):
                return [Fail(f"worker {name} {how} before it was ready, {early} times in a row")]
        hung, fruitless = worker in self._hung, self._fruitless.get(worker, 0) + 1
        self._hung.discard(worker)
        killed = killed and not hung
        if fruitless >= (MAX_FRUITLESS_KILLS if killed else MAX_FRUITLESS_DEATHS):
            return [Fail(f"worker {name} {how}, {fruitless} times without a learn step in between: it is given up")]
        self._fruitless[worker] = fruitless
        self.ready.discard(worker)
        if not killed and not hung and self._crashes_fast(died):
            return self._give_up(died)
        self.restarts += 1
        if worker in self.blueprint.watching_workers():
            return [Tell(f"worker {name} {how}: it is replaced"), Replace(worker)]
        if self.blueprint.synchrony.still:
            everyone = tuple(w.index for w in self.blueprint.workers)
            return [Tell(f"worker {name} {how}: lockstep replaces all workers"), Recover(everyone)]
        if worker in self.learning:
            return [Tell(f"worker {name} {how}: all learners are replaced"), Recover(self.learning)]
        return [Tell(f"worker {name} {how}: it is replaced"), Replace(worker)]

    def _crashes_fast(self, died: Died) -> bool:
        """Whether a worker that has died by itself did so too often, too soon."""
        self._fast[died.worker] = self._fast.get(died.worker, 0) + 1 if died.lived < FAST_SECONDS else 0
        return self._fast[died.worker] >= MAX_FAST_CRASHES

    def _give_up(self, died: Died) -> list[Instruction]:
        """A worker that is like to crash for ever: go on with those that do the same, or end the run."""
        worker = died.worker
        text = f"worker {self._name(worker)} {died.how}, {MAX_FAST_CRASHES} times in a row, each time within "
        text += f"{FAST_SECONDS:.0f} s of its start: it is given up"
        return self._without(worker, text, f"\n{died.last_words}" if died.last_words else "")

    def _without(self, worker: int, text: str, last_words: str = "") -> list[Instruction]:
        """Go on with those that do the same, or end the run."""
        stages = {self.blueprint.sides[s].stage for s in self.blueprint.workers[worker].sides}
        others = {s.stage for s in self.blueprint.sides if s.worker not in self.given_up | {worker}}
        shard = any(self.blueprint.sides[s].shards for s in self.blueprint.workers[worker].sides)
        if self.blueprint.synchrony.still or worker in self.learning or shard or not stages <= others:
            return [Fail(f"{text}, and the run cannot go on without it{last_words}")]
        self.given_up.add(worker)
        return [Tell(f"{text}; the others go on{last_words}")]

    def _name(self, worker: int) -> str:
        return self.blueprint.workers[worker].name
