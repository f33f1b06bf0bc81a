"""A store in a worker of its own, its learner and those that feed it, killed at whichever store of a word. No process.

The bench of ``test_ledger_of_the_killed.py``, with a list of numbers for a replay.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from tasks import Office
from test_ledger_of_the_killed import ALONE, ENVS, MAX_LAG, UNROLL, Bench, BurningTask, Fuse, Producer, Strand

import weft
from weft.runtimes.roles.drawn_side import DrawnSide, _Learned
from weft.runtimes.roles.store_pace import StorePace
from weft.runtimes.roles.store_side import StoreSide
from weft.runtimes.stage import Finite
from weft.runtimes.workers.counting.account import Fate
from weft.runtimes.workers.layout.blueprint import Side

ROUNDS = 4
REPLAY = {"unroll": UNROLL, "hidden": (8,), "capacity": 64, "batch": 2, "samples_per_insert": 2.0, "learning_begins": 1}
PLANS = {
    "one": ("(env+act)*2 | replay | learn", weft.DQN(**REPLAY)),
    "told": ("(env+act) | replay | learn", weft.DQN(**REPLAY, prioritised=True)),
    "shards": ("(env+act)*2 | replay*2 | learn", weft.DQN(**REPLAY, prioritised=True)),
    "beside act": ("(env+act+replay)*2 | learn", weft.DQN(**REPLAY, prioritised=True)),
}


class Numbers:
    """A home of the numbers that unrolls have for rewards."""

    def __init__(self, kept: list[float]) -> None:
        self.kept, self.told = list(kept), 0

    def insert(self, unroll: Any, lane: int = 0, same: Any = True) -> None:
        self.kept.append(float(unroll.reward[0, 0]))

    def draw(self, into: Any) -> None:
        into.reward[...] = self.kept[-1]

    def feedback(self, messages: Any) -> None:
        self.told += 1

    def figures(self) -> dict[str, float]:
        return {"held": len(self.kept)}


class StoreBench(Bench):
    """With stores, which go on from what was saved of them."""

    def live(self, worker: int) -> None:
        self.lives[worker] = self.lives.get(worker, -1) + 1
        sides = [self.office.blueprint.sides[i] for i in self.office.blueprint.workers[worker].sides]
        for side in sides:  # as the engine does it, before there is a process
            if side.role == "store":
                self.books.settle_store(side, self._kept_then().get(side.index, ([], 0))[1])
        task = self.office.task(worker, BurningTask, self.lives[worker], self.watched)
        assert isinstance(task, BurningTask)
        task.bench = self
        self.strands[worker] = []
        makes = {"step": Producer, "store": self._store, "learn": self._learner}
        self.sides[worker] = [makes[side.role](task, side) for side in sides]
        for side in self.sides[worker]:
            side.context.strand = Strand(side.run)
            self.strands[worker].append(side.context.strand)

    def die(self, worker: int) -> None:
        super().die(worker)
        if any(isinstance(side, StoreSide) for side in self.sides[worker]):
            self.at_the_kill = None  # its books are closed when its next life begins, as those of a learner are

    def _kept_then(self) -> dict[int, tuple[list[float], int]]:
        return self.__dict__.setdefault("kept_then", {})

    def _store(self, task: BurningTask, side: Side) -> StoreSide:
        store = StoreSide(task, side)
        kept = self._kept_then().get(side.index, ([], 0))[0]
        store.home, store.pace = Numbers(kept), StorePace(2, len(task.blueprint.lanes), 0)
        return store

    def _learner(self, task: BurningTask, side: Side) -> DrawnSide:
        learner = DrawnSide(task, side)
        state, learner.version = self.standing[learner.name]
        learner.states = {learner.name: state}

        def learn(states: Any, batches: Any) -> Any:
            count = batches.reward.shape[0]
            finite = Finite(np.ones(count, bool), np.ones(count, bool))
            told = [np.zeros(s.shape, s.dtype) for s in jax.tree.leaves(told_of(self.office))]
            return states, _Learned([{"loss": np.zeros(count)}], [finite], told)

        learner._learn_from = learn
        learner._publish()
        return learner

    def stores(self) -> list[StoreSide]:
        return [side for sides in self.sides.values() for side in sides if isinstance(side, StoreSide)]

    def save(self) -> None:
        for side in (side for sides in self.sides.values() for side in sides):
            if isinstance(side, DrawnSide):
                self.standing[side.name] = (side.states[side.name], side.version)
            elif isinstance(side, StoreSide):
                trained = int(self.office.account.sides[side.context.index][Fate.TRAINED])
                self._kept_then()[side.context.index] = (list(side.home.kept), trained)
        self.trained_then = self.books.trained({k: n for k, (_, n) in self._kept_then().items()})

    def version(self) -> int:
        return next(s.version for sides in self.sides.values() for s in sides if isinstance(s, DrawnSide))


def told_of(office: Office) -> Any:
    wires = [wire for wire in office.blueprint.wires if wire.feedback]
    return office.schemas.form(wires[0]).schema if wires else ()


@cache
def opened(plan: str, algorithm: Any) -> Office:
    return Office(plan, algorithm, ALONE, envs=ENVS, max_lag=MAX_LAG)


@pytest.fixture(autouse=True)
def our_office(monkeypatch):
    monkeypatch.setattr("test_ledger_of_the_killed.opened", opened)


def check(bench: StoreBench, when: str) -> None:
    """Every sample is in the ledger once, and what counts as trained on is what stores have been given."""
    ledger = bench.books.ledger(seconds=0)
    steps = UNROLL * bench.office.blueprint.lanes[0].rows
    assert bench.at_the_kill is None or bench.at_the_kill.balanced, f"{when}: {bench.at_the_kill}"
    assert ledger.balanced, f"{when}: {ledger}"
    kept = [number for store in bench.stores() for number in store.home.kept]
    assert len(set(kept)) == len(kept), f"{when}: kept twice"
    assert ledger.trained == len(kept) * steps, when
    assert all(count >= 0 for count in ledger.dropped.values()), f"{when}: {ledger}"


def killed_at(plan: str, algorithm: Any, kill: int, again: int, *, forgets: bool) -> int:
    """One run, killed at a store, and at another after that; 0: never. How often words were stored."""
    fuse = Fuse(-1)
    bench = StoreBench(plan, algorithm, fuse, forgets=forgets)
    try:
        fuse.left, fuse.again = kill, again
        bench.run(ROUNDS)
        touches, fuse.left = -fuse.left, 0
        before, kept = bench.version(), [len(store.home.kept) for store in bench.stores()]
        bench.run(9)
        assert bench.version() > before, f"killed at store {kill}: it learned no more"
        assert all(len(s.home.kept) > n for s, n in zip(bench.stores(), kept, strict=True)), f"{kill}: kept no more"
        if kill:
            assert bench.kills in ((1, 2) if again else (1,))
        check(bench, f"killed at store {kill}" + (f" and {again} stores later" if again else ""))
        return touches
    finally:
        bench.close()


@pytest.mark.parametrize("forgets", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["memory", "socket"])
@pytest.mark.parametrize(
    "name", [name if name == "shards" else pytest.param(name, marks=pytest.mark.slow) for name in PLANS]
)
def test_at_whichever_store_a_worker_is_killed_every_sample_is_in_the_ledger_once(name, forgets):
    touches = killed_at(*PLANS[name], 0, 0, forgets=forgets)
    assert touches > 50
    for kill in range(1, touches + 1):
        killed_at(*PLANS[name], kill, 0, forgets=forgets)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_killed_twice_the_second_time_as_its_next_life_begins(name):
    for kill in range(1, killed_at(*PLANS[name], 0, 0, forgets=False) + 1):
        for again in range(1, 10, 2):
            killed_at(*PLANS[name], kill, again, forgets=False)
