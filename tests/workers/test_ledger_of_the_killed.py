"""The ledger balances, and nothing is trained on twice, at whichever store a worker is killed. No process.

The real sides are built from a task, as workers do it, with numbers in place of what they compute. Each runs in turn,
until it waits. A fuse burns down with every store into the account, every commit and every release, and what burns it
out is killed, with all sides of its worker: its next life is made, as the runtime makes it, and goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest
from tasks import Office

import weft
from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import TrainState
from weft.runtimes.flow import Flowed
from weft.runtimes.hosted.blocks import as_message
from weft.runtimes.roles import learn_side
from weft.runtimes.roles.apply_side import ApplySide
from weft.runtimes.roles.grad_side import GradSide
from weft.runtimes.roles.learn_side import LearnSide
from weft.runtimes.roles.message_side import MessageSide
from weft.runtimes.stage import Finite
from weft.runtimes.workers import brought
from weft.runtimes.workers.brought import Brought
from weft.runtimes.workers.counting.account import Account, OfSide
from weft.runtimes.workers.counting.ledger import AccountLedger
from weft.runtimes.workers.layout.blueprint import Side, Wire
from weft.runtimes.workers.side import SideContext, Stopped
from weft.runtimes.workers.weights import Weights
from weft.runtimes.workers.wiring import Task
from weft.streams.registry import create, open_reader
from weft.telemetry.ledger import Ledger

ROUNDS, UNROLL, ENVS = 4, 2, 2
MAX_LAG = 1
TIMES = {OfSide.TICK, OfSide.WAITING, OfSide.BUSY_NS, OfSide.WAIT_NS}
"""Words that no count depends on."""


class Killed(Exception):
    pass


class Fuse:
    """Burns out at the ``left``-th touch from now; then once more at the ``again``-th after that."""

    def __init__(self, left: int = 0, again: int = 0) -> None:
        self.left, self.again = left, again

    def touch(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.left, self.again = self.again, 0
            raise Killed


class Words(np.ndarray):
    """Words of the account; a store into them may be one too many."""

    fuse: Fuse
    free: frozenset[int]  # words that may be stored into for nothing

    def __array_finalize__(self, base: Any) -> None:
        self.fuse, self.free = getattr(base, "fuse", None), getattr(base, "free", frozenset())

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self.free:
            self.fuse.touch()
        super().__setitem__(key, value)


class WritingEnd:
    """A writing end whose commits burn the fuse."""

    def __init__(self, end: Any, fuse: Fuse) -> None:
        self._end, self._fuse = end, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    def commit(self, stamp: Any) -> None:
        self._fuse.touch()
        self._end.commit(stamp)


class ReadingEnd:
    """A reading end whose releases burn the fuse; the channel may become another, with what was received still held."""

    def __init__(self, end: Any, fuse: Fuse) -> None:
        self.end, self._fuse = end, fuse
        self._from: dict[int, Any] = {}

    def announce(self, told: Any) -> bool:
        return False

    def receive(self, timeout: float | None) -> Any:
        message = self.end.receive(timeout)
        if message is not None:
            self._from[id(message.arrays)] = self.end
        return message

    def note(self, number: int) -> None:
        self._fuse.touch()
        self.end.note(number)

    def release(self, message: Any) -> None:
        self._fuse.touch()
        self._from[id(message.arrays)].release(message)


class Strand:
    """A side's loop, in a thread that runs only while it is resumed: until it waits, is killed, or is to end."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._run, self.error, self.over = run, None, False
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        self._mine.acquire()
        try:
            if not self.over:
                self._run()
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        self._theirs.release()

    def resume(self) -> None:
        """Its turn; what it raises is raised here."""
        self._mine.release()
        self._theirs.acquire()
        if self.error is not None:
            self._thread.join()
            raise self.error

    def give_way(self) -> None:
        """Its turn is over; returns when the next one comes."""
        self._theirs.release()
        self._mine.acquire()
        if self.over:
            raise Stopped

    def end(self) -> None:
        """Leave the loop."""
        self.over = True
        if self._thread.is_alive():
            self._mine.release()
        self._thread.join()


@dataclass
class Turns(SideContext):
    """A side's place in the run: waiting is giving way to others."""

    strand: Strand | None = field(default=None, init=False)

    def wait(self) -> None:
        assert self.strand is not None
        self.strand.give_way()

    def tick(self) -> None:
        """Nobody looks at the time."""


class Silent:
    """A link to nobody."""

    def say(self, kind: str, body: Any = None, arrays: Any = ()) -> None:
        pass


class BurningTask(Task):
    """A task whose ends and words burn the fuse."""

    bench: Bench

    def context(self, side: Side) -> SideContext:
        if side.index not in self._contexts:
            bell, link = self.bells[side.index], Silent()
            self._contexts[side.index] = Turns(side.index, side.name, bell, self.account, link, self.life)
        return self._contexts[side.index]

    def writer(self, wire: Wire) -> Any:
        return WritingEnd(super().writer(wire), self.bench.fuse)

    def reader(self, wire: Wire, side: Side) -> Any:
        end = super().reader(wire, side)
        if not wire.samples:
            return end
        self.bench.reading[wire.name] = ReadingEnd(end, self.bench.fuse)
        return self.bench.reading[wire.name]


# ---- what is made of what --------------------------------------------------------------------------------------------


def numbers_of(message: Any) -> list[float]:
    """The numbers of the unrolls that a message stands for."""
    if hasattr(message, "tree"):
        return [float(x) for x in _largest(message.tree).reshape(-1) if x > 0]
    return [float(message.reward[0, 0])]


def _largest(tree: Any) -> Any:
    return max(jax.tree.leaves(tree), key=lambda leaf: leaf.size)


def renumbered(message: Any, more: float) -> Any:
    """A message like it, with other numbers."""
    if hasattr(message, "tree"):
        return message._replace(tree=jax.tree.map(lambda x: np.where(x > 0, x + more, x).astype(x.dtype), message.tree))
    return message._replace(reward=message.reward + np.float32(more))


def given(pattern: tuple[int, ...], state: Any, message: Any) -> Any:
    """As many messages as the pattern says, for each in turn."""
    count = pattern[int(state) % len(pattern)]
    return state + 1, [renumbered(message, k / 4) for k in range(count)]


def counts_from_0(key: Any) -> Any:
    return np.int64(0)


@dataclass(frozen=True)
class Numbered(weft.A2C):
    """A2C, with a map that gives as many messages as ``pattern`` says."""

    unroll: int = UNROLL
    hidden: tuple[int, ...] = (8,)
    on: str = ""
    pattern: tuple[int, ...] = (1,)
    twice: bool = False  # a pure map gives each unroll twice

    def graph(self) -> weft.Graph:
        if self.twice:
            return super().graph().insert("again", lambda state, unroll: (state, [unroll, unroll]))
        if not self.on:
            return super().graph()
        return super().graph().insert("mine", partial(given, self.pattern), counts_from_0, on=self.on, host=True)


@dataclass(frozen=True)
class TwoPolicies(weft.Algorithm):
    """An A2C for each of two teams; a map on one's unrolls."""

    unroll: int = UNROLL

    def graph(self) -> weft.Graph:
        both = {name: Numbered() for name in TEAMS.teams}
        graph = weft.several_policies(both, self.spec)
        return graph.insert("mine", partial(given, (1, 2)), counts_from_0, on="unroll.red", host=True)


ALONE = EnvSpec("alone", Box((2,)), Discrete(2))
TEAMS = EnvSpec.of_teams("teams", {"red": ALONE, "blue": ALONE})


class Producer:
    """Makes the unrolls of one lane, for each act of its side."""

    def __init__(self, task: BurningTask, side: Side) -> None:
        self.bench, self.context, self.synchrony = task.bench, task.context(side), task.blueprint.synchrony
        acts = [name for name in side.fragments if name.partition(".")[0] == "act"]
        self.writers = [(task.unroll_writer(side, name, side.lanes[0]), task.weights(side, name)) for name in acts]

    def run(self) -> None:
        while True:
            for writer, weights in self.writers:
                self._make(writer, weights)

    def _make(self, writer: Any, weights: Weights) -> None:
        while (buffer := writer.begin_unroll(weights, self.synchrony, self.context)) is None:
            self.context.wait()
        self.bench.made += 1
        for _ in range(UNROLL):
            writer.count(1)
        buffer.block.steps.reward[...] = self.bench.made
        writer.commit(weights.version)


def _learner(task: BurningTask, side: Side) -> LearnSide:
    learner = LearnSide(task, side)
    state, learner.version = task.bench.standing[learner.name]
    learner.states = {learner.name: state}

    def learn(kept: Any, states: Any, batches: Any, noise: Any) -> Flowed:
        found = [n for blocks in batches.values() for block in blocks for n in numbers_of(as_message(block))]
        finite = Finite(np.bool_(True), np.bool_(True))
        state = _with(states[learner.name], found)
        return Flowed({learner.name: state}, {}, {learner.name: [{"loss": np.zeros(())}]}, {learner.name: [finite]})

    learner._learn_from = learn
    learner._publish()
    return learner


def _grad(task: BurningTask, side: Side) -> GradSide:
    grad = GradSide(task, side)
    schema = task.schemas.graph.fragment(grad.name).outputs[0].schema

    def compute(states: Any, leaves: Any, batches: Any, noise: Any) -> Any:
        found = [n for blocks in batches.values() for block in blocks for n in numbers_of(as_message(block))]
        message = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), schema)
        _largest(message.tree).reshape(-1)[: len(found)] = found
        message = message._replace(learned=np.float32(1), rewards=np.float32(1))
        again = "again" in side.fragments  # a pure map of its own side
        return states, [message, renumbered(message, 1 / 8)] if again else [message]

    grad._grad = compute
    return grad


def _apply(task: BurningTask, side: Side) -> ApplySide:
    apply = ApplySide(task, side)
    apply.train, apply.version = task.bench.standing[apply.name]
    apply._apply = lambda train, *messages: _with(train, [n for m in messages for n in numbers_of(m)])
    apply.publisher.publish(apply.train.params, apply.version)
    return apply


def _map(task: BurningTask, side: Side) -> MessageSide:
    made = MessageSide(task, side)
    made.start()
    return made


def _with(state: TrainState, numbers: list[float]) -> TrainState:
    return state._replace(optimizer=(*state.optimizer, *numbers))


MAKES: dict[str, Callable[[BurningTask, Side], Any]] = {
    "step": Producer,
    "learn": _learner,
    "grad": _grad,
    "apply": _apply,
    "map": _map,
}


# ---- the bench -------------------------------------------------------------------------------------------------------


class Bench:
    """Workers, channels, the account and the books of a plan. ``forgets``: what a killed worker had sent goes too."""

    def __init__(self, plan: str, algorithm: Any, fuse: Fuse, *, forgets: bool) -> None:
        self.office = office = opened(plan, algorithm)
        office.open()
        self.fuse, self.forgets, blueprint = fuse, forgets, office.blueprint
        self.books = AccountLedger(blueprint)
        self.books.open(office.account, {}, 0)
        self.watched = Account(len(blueprint.sides), len(blueprint.wires), office.account.fd)
        self.watched.sides, self.watched.wires = self._words(self.watched.sides, TIMES), self._words(self.watched.wires)
        self.reading: dict[str, ReadingEnd] = {}
        self.old: list[Any] = []  # channels that were forgotten
        self.made = self.kills = 0
        self.standing = {name: (TrainState(params_of(office, name), (), 0, 0), 0) for name in blueprint.publishers}
        self.trained_then: dict[str, int] = {}  # as the checkpoint was made
        self.learning = blueprint.publishing_workers()
        self.at_the_kill: Ledger | None = None  # of one that does not learn
        self.lives: dict[int, int] = {}
        self.sides: dict[int, list[Any]] = {}
        self.strands: dict[int, list[Strand]] = {}
        for worker in blueprint.workers:
            self.live(worker.index)

    def _words(self, words: Any, free: set[OfSide] | None = None) -> Words:
        view: Words = words.view(Words)
        view.fuse, view.free = self.fuse, frozenset(free or ())
        return view

    def live(self, worker: int) -> None:
        """A worker's next life."""
        self.lives[worker] = self.lives.get(worker, -1) + 1
        sides = [self.office.blueprint.sides[i] for i in self.office.blueprint.workers[worker].sides]
        task = self.office.task(worker, BurningTask, self.lives[worker], self.watched)
        assert isinstance(task, BurningTask)
        task.bench, task.learner_devices = self, (jax.local_devices()[0],)
        self.strands[worker] = []
        self.sides[worker] = [MAKES[side.role](task, side) for side in sides]
        for side in self.sides[worker]:
            side.context.strand = Strand(side.run)
            self.strands[worker].append(side.context.strand)

    def run(self, rounds: int) -> None:
        """Everybody takes turns; whoever is killed gets a new life, as the runtime gives it, and others go on."""
        for number in range(rounds):
            for worker in self.office.blueprint.workers:
                try:
                    for strand in self.strands[worker.index]:
                        strand.resume()
                except Killed:
                    self.die(worker.index)
            if number % 2:
                self.save()

    def die(self, worker: int) -> None:
        """A worker was killed; its next life may be killed too, as it starts."""
        self.kills += 1
        learning = worker in self.learning
        if not learning:
            self.at_the_kill = self.books.ledger(seconds=0)  # others go on and report, before its next life begins
        gone = self.learning if learning else (worker,)
        for one in gone:
            for strand in self.strands[one]:
                strand.end()
            if self.forgets:
                self.forget(one)
        if learning:
            self.books.settle(self.trained_then)
        for one in gone:
            try:
                self.live(one)
            except Killed:
                self.die(one)
                return

    def forget(self, worker: int) -> None:
        """What a worker has sent to others, and they have not received, is gone."""
        blueprint = self.office.blueprint
        for wire in blueprint.wires:
            writer, reader = blueprint.sides[wire.writer], blueprint.sides[wire.readers[0]] if wire.readers else None
            if not wire.samples or writer.worker != worker or reader is None or reader.worker == worker:
                continue
            old = self.office.created[wire.name]
            self.old.append(old)
            self.office.created[wire.name] = new = create(old.spec)
            bells = self.office.bells
            self.reading[wire.name].end = open_reader(new.spec, bells[reader.index], bells[writer.index])

    def save(self) -> None:
        """A checkpoint; only while everybody waits."""
        for side in (side for sides in self.sides.values() for side in sides):
            if isinstance(side, LearnSide):
                self.standing[side.name] = (side.states[side.name], side.version)
            elif isinstance(side, ApplySide):
                self.standing[side.name] = (side.train, side.version)
        self.trained_then = self.books.trained()

    def trained(self) -> dict[str, list[float]]:
        """The numbers that the params of each learner hold."""
        self.save()
        return {name: list(state.optimizer) for name, (state, _) in self.standing.items()}

    def close(self) -> None:
        for strands in self.strands.values():
            for strand in strands:
                strand.end()
        for one in self.old:
            one.close()
        self.office.close()


@cache
def opened(plan: str, algorithm: Any) -> Office:
    """Shapes are found once for each plan."""
    spec = TEAMS if isinstance(algorithm, TwoPolicies) else ALONE
    return Office(plan, algorithm, spec, envs=ENVS, max_lag=MAX_LAG)


@cache
def _params(office: Office, name: str) -> Any:
    fragment = office.schemas.graph.fragment(name)
    return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), fragment.outputs[0].schema)


def params_of(office: Office, name: str) -> Any:
    return _params(office, name)


PLANS = {
    "one lane": ("(env+act) | learn", Numbered()),
    "two lanes": ("(env+act)*2 | learn", Numbered()),
    "grad": ("(env+act+grad) | apply", Numbered()),
    "two grads": ("(env+act+grad)*2 | apply", Numbered()),
    "grad apart": ("(env+act)*2 | grad | apply", Numbered()),
    "map of one": ("(env+act)*2 | mine | learn", Numbered(on="unroll")),
    "map of none": ("(env+act)*2 | mine | learn", Numbered(on="unroll", pattern=(1, 0))),
    "map of two": ("(env+act)*2 | mine | learn", Numbered(on="unroll", pattern=(2,))),
    "map of any": ("(env+act)*2 | mine*2 | learn", Numbered(on="unroll", pattern=(2, 0, 1))),
    "map beside act": ("(env+act+mine)*2 | learn", Numbered(on="unroll", pattern=(1, 2, 0))),
    "map beside learn": ("(env+act)*2 | mine+learn", Numbered(on="unroll", pattern=(1, 2, 0))),
    "map and grad": ("(env+act)*2 | mine | grad | apply", Numbered(on="unroll", pattern=(1, 2, 0))),
    "map of gradients": ("(env+act+grad)*2 | mine | apply", Numbered(on="gradients", pattern=(1, 2, 0))),
    "map with each grad": ("(env+act+grad+mine)*2 | apply", Numbered(on="gradients", pattern=(1, 0))),
    "map within grad": ("(env+act)*2 | again+grad | apply", Numbered(twice=True)),
    "map beside apply": ("(env+act)*2 | grad*2 | mine+apply", Numbered(on="gradients", pattern=(1, 2))),
    "two policies": ("(env+act.red+act.blue)*2 | mine | learn.red | learn.blue", TwoPolicies()),
    "two policies, one learner": ("(env+act.red+act.blue) | mine | learn.red+learn.blue", TwoPolicies()),
}


def whole_run(plan: str, algorithm: Any, *, forgets: bool) -> int:
    """The touches of a run in which nobody is killed."""
    never = Fuse()
    bench = Bench(plan, algorithm, never, forgets=forgets)
    try:
        never.left = 0
        bench.run(ROUNDS)
        touches = -never.left
        assert bench.kills == 0
        check(bench, "nobody killed")
        assert all(len(numbers) >= ROUNDS - 1 for numbers in bench.trained().values())
        return touches
    finally:
        bench.close()


def check(bench: Bench, when: str) -> None:
    """Every sample is in the ledger once."""
    ledger, trained = bench.books.ledger(seconds=0), bench.trained()
    steps = UNROLL * bench.office.blueprint.lanes[0].rows
    assert bench.at_the_kill is None or bench.at_the_kill.balanced, f"{when}: {bench.at_the_kill}"
    assert ledger.balanced, f"{when}: {ledger}"
    assert bench.books.trained() == {name: len(found) * steps for name, found in trained.items()}, when
    assert ledger.trained == sum(map(len, trained.values())) * steps, when
    for found in trained.values():
        assert len(set(found)) == len(found), f"{when}: trained on twice"
    assert all(count >= 0 for count in ledger.dropped.values()), f"{when}: {ledger}"
    assert 0 <= ledger.in_flight // steps <= 3 * (MAX_LAG + 2) * len(bench.office.blueprint.wires), f"{when}: {ledger}"


SLOW_IN_MEMORY = {
    "one lane",
    "grad",
    "map of one",
    "map and grad",
    "map with each grad",
    "two policies, one learner",
    "two policies",
}
QUICK_OVER_SOCKETS = {"two lanes", "map of any", "map of gradients"}
CASES = [
    pytest.param(*case, forgets, id=f"{name}-{'socket' if forgets else 'memory'}", marks=[pytest.mark.slow] * slow)
    for name, case in PLANS.items()
    for forgets, slow in ((False, name in SLOW_IN_MEMORY), (True, name not in QUICK_OVER_SOCKETS))
]


@pytest.mark.parametrize(("plan", "algorithm", "forgets"), CASES)
def test_at_whichever_store_a_worker_is_killed_every_sample_is_in_the_ledger_once(plan, algorithm, forgets):
    touches = whole_run(plan, algorithm, forgets=forgets)
    assert touches > 50
    for kill in range(1, touches + 1):
        killed_at(plan, algorithm, kill, 0, forgets=forgets)


@pytest.mark.parametrize("first", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3, 4))])
def test_the_same_holds_where_messages_are_sent_to_a_device_ahead(first, monkeypatch):
    sent: list[Any] = []
    bring = Brought.bring

    def counted(self: Brought, leg: Any, messages: list[Any]) -> None:
        bring(self, leg, messages)
        sent.extend(messages)

    monkeypatch.setattr(learn_side, "pays", lambda replicas: True)
    monkeypatch.setattr(brought, "LARGE_ARRAY_BYTES", 1)
    monkeypatch.setattr(Brought, "bring", counted)
    plan, algorithm = PLANS["two lanes"]
    for kill in range(first, whole_run(plan, algorithm, forgets=False) + 1, 4):
        killed_at(plan, algorithm, kill, 0, forgets=False)
    assert sent


def killed_at(plan: str, algorithm: Any, kill: int, again: int, *, forgets: bool) -> None:
    """One run, killed at a store, and at another after that unless it is 0."""
    fuse = Fuse(-1)
    bench = Bench(plan, algorithm, fuse, forgets=forgets)
    try:
        fuse.left, fuse.again = kill, again
        bench.run(ROUNDS)
        fuse.left = 0
        before = bench.trained()
        bench.run(3)  # what was lost on its way is noticed when the next comes
        for _ in range(6):
            if not all(len(found) > len(before[name]) for name, found in bench.trained().items()):
                bench.run(1)
        stuck = [name for name, found in bench.trained().items() if len(found) <= len(before[name])]
        assert not stuck, f"killed at store {kill}: {stuck} learned no more"
        assert bench.kills in ((1, 2) if again else (1,))  # the run may be over before the second
        check(bench, f"killed at store {kill}" + (f" and {again} stores later" if again else ""))
    finally:
        bench.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["two lanes", "two grads", pytest.param("map of any", marks=pytest.mark.slow), "map of gradients", "two policies"],
)
def test_killed_twice_the_second_time_as_its_next_life_begins(name):
    plan, algorithm = PLANS[name]
    for kill in range(1, whole_run(plan, algorithm, forgets=False) + 1):
        for again in range(1, 10, 2):
            killed_at(plan, algorithm, kill, again, forgets=False)
