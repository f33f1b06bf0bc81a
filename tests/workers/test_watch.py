"""Who is stuck, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
from drafts import drafted, loop, same

from weft.runtimes.workers.control.watch import COMPILING, Watch
from weft.runtimes.workers.counting.account import Account, OfSide


class Watched:
    """A watch over a blueprint's sides, and a clock that the test moves."""

    def __init__(self, plan: str, hang_seconds: float = 10.0, graph: Any = None) -> None:
        self.blueprint = drafted(plan, graph=graph)
        self.account = Account(len(self.blueprint.sides), len(self.blueprint.wires))
        self.now = 100.0
        self.watch = Watch(self.blueprint, hang_seconds, lambda: self.now)
        self.everyone = {worker.index for worker in self.blueprint.workers}
        self.sides = {side.name: side.index for side in self.blueprint.sides}
        assert self.look() == []

    def look(self, seconds: float = 0.0, ready: set[int] | None = None) -> list[tuple[int, float]]:
        self.now += seconds
        return self.watch.stuck(self.account.sides, self.everyone if ready is None else ready)

    def tick(self, *names: str) -> None:
        for name in names:
            self.account.sides[self.sides[name]][OfSide.TICK] += 1

    def waits(self, name: str, waiting: bool = True) -> None:
        self.account.sides[self.sides[name]][OfSide.WAITING] = waiting

    def close(self) -> None:
        self.account.close()


@pytest.fixture
def watched():
    made = []

    def make(plan="env*2 | act | learn", **how):
        made.append(Watched(plan, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_side_that_does_not_get_on_is_found_once(watched):
    w = watched()
    env = w.blueprint.sides_of("env")[0].worker
    for _ in range(3):
        w.tick("env-0", "env-1", "act-0", "learn-0")
        assert w.look(9.0) == []
    w.tick("env-1", "act-0", "learn-0")
    assert w.look(9.0) == []
    w.tick("env-1", "act-0", "learn-0")
    assert w.look(2.0) == [(env, 11.0)]
    w.tick("env-1", "act-0", "learn-0")
    assert w.look(5.0) == [], "told twice"
    w.tick("env-0", "env-1", "act-0", "learn-0")
    assert w.look(1.0) == []
    w.tick("env-1", "act-0", "learn-0")
    assert w.look(11.0) == [(env, 11.0)], "stuck again, and not told"


def test_who_waits_for_others_is_not_stuck(watched):
    w = watched()
    for name in w.sides:
        w.waits(name)
    assert w.look(1000.0) == []
    w.waits("env-0", False)
    assert w.look(9.0) == [], "it has waited until now"
    assert [worker for worker, _ in w.look(3.0)] == [w.blueprint.sides_of("env")[0].worker]


def test_sides_that_compile_have_more_time(watched):
    w = watched("env | act+learn")
    w.waits("env-0")
    assert w.look(10.0 * COMPILING - 1.0) == []
    ((worker, seconds),) = w.look(2.0)
    assert worker == w.blueprint.sides_of("act")[0].worker
    assert seconds == pytest.approx(10.0 * COMPILING + 1.0)


def test_one_side_that_waits_does_not_hide_another_of_the_same_worker_nor_have_it_told_again(watched):
    w = watched("env | act+learn")
    w.waits("env-0")
    w.waits("act-0")
    assert [worker for worker, _ in w.look(51.0)] == [w.blueprint.sides_of("learn")[0].worker]
    for _ in range(5):
        w.tick("act-0")
        assert w.look(1.0) == [], "told again while it is being killed"


def test_who_is_not_ready_is_not_watched_and_has_its_whole_time_afterwards(watched):
    w = watched()
    for name in ("env-1", "act-0", "learn-0"):
        w.waits(name)
    env = w.blueprint.sides_of("env")[0].worker
    assert w.look(100.0, ready=w.everyone - {env}) == []
    assert w.look(9.0) == []
    assert w.look(2.0) == [(env, 11.0)]


def test_only_environments_in_a_worker_of_their_own_have_no_time_to_compile(watched):
    w = watched("(env+act)*2 | mine | learn", graph=loop().insert("mine", same))
    assert {side.stage: side.compiles for side in w.blueprint.sides} == {"env+act": True, "mine": True, "learn": True}
    for name in w.sides:
        w.waits(name, name != "mine-0")
    assert w.look(10.0 * COMPILING - 1.0) == []
    assert [worker for worker, _ in w.look(2.0)] == [w.blueprint.sides_of("mine")[0].worker]
