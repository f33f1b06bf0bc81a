"""Who is stuck, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
from drafts import drafted, loop, same

from weft.runtimes.workers.control.watch import COMPILING, COMPUTING, START_SECONDS, STILL_SECONDS, Kind, Stuck, Watch
from weft.runtimes.workers.counting.account import Account, Doing, OfSide


class Watched:
    """A watch over a blueprint's sides, and a clock that the test moves, a tenth of a second at a time."""

    def __init__(self, plan: str, hang_seconds: float = 10.0, graph: Any = None) -> None:
        self.blueprint = drafted(plan, graph=graph)
        self.account = Account(len(self.blueprint.sides), len(self.blueprint.wires))
        self.now = 100.0
        self.watch = Watch(self.blueprint, hang_seconds, lambda: self.now)
        self.everyone = {worker.index for worker in self.blueprint.workers}
        self.sides = {side.name: side.index for side in self.blueprint.sides}
        self.worker = {side.name: side.worker for side in self.blueprint.sides}
        for name in self.sides:
            self.words(name)[OfSide.BEAT] = 1
        assert self.look() == []

    def words(self, name: str) -> Any:
        return self.account.sides[self.sides[name]]

    def look(self) -> list[Stuck]:
        return self.watch.stuck(self.account.sides, self.everyone, self.everyone)

    def passes(
        self,
        seconds: float,
        idle: tuple[str, ...] = (),
        frozen: tuple[str, ...] = (),
        ready: set[int] | None = None,
        looks: bool = True,
    ) -> list[tuple[int, Kind, bool]]:
        """Time passes: sides tick, but for those that are ``idle``; processes beat, but for those ``frozen``."""
        found = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if not looks:
                continue
            for name in self.sides:
                self.words(name)[OfSide.BEAT] += name not in frozen
                self.words(name)[OfSide.TICK] += name not in idle and name not in frozen
            stuck = self.watch.stuck(self.account.sides, self.everyone if ready is None else ready, self.everyone)
            found += [(one.worker, one.kind, one.final) for one in stuck]
        return found

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


def test_a_side_without_progress_is_found_once(watched):
    w = watched()
    hung = (w.worker["env-0"], Kind.CALLING, True)
    assert w.passes(30.0) == []
    assert w.passes(9.0, idle=("env-0",)) == []
    assert w.passes(2.0, idle=("env-0",)) == [hung]
    assert w.passes(50.0, idle=("env-0",)) == [], "told twice"
    assert w.passes(1.0) == []
    assert w.passes(11.0, idle=("env-0",)) == [hung], "stuck again, and not told"


@pytest.mark.parametrize("name", ["env-0", "act-0", "learn-0"])
@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize("doing", list(Doing))
def test_a_process_that_stands_still_is_found_whatever_it_was_in(watched, name, waiting, doing):
    """The words stay as they were when it was stopped: while it waited, computed or compiled."""
    w = watched()
    w.words(name)[OfSide.WAITING], w.words(name)[OfSide.DOING] = waiting, doing
    assert w.passes(9.0, frozen=(name,)) == []
    assert w.passes(2.0, frozen=(name,)) == [(w.worker[name], Kind.FROZEN, True)]


def test_a_pulse_that_is_late_on_a_busy_machine_is_none_that_stands_still(watched):
    w = watched(hang_seconds=1.0)
    for name in w.sides:
        w.words(name)[OfSide.DOING] = Doing.COMPUTING
    assert w.passes(STILL_SECONDS - 0.5, frozen=("learn-0",)) in ([], [(w.worker["learn-0"], Kind.COMPUTING, False)])
    assert w.passes(1.0) == []


def test_a_launcher_that_stood_still_itself_blames_nobody(watched):
    w = watched()
    assert w.passes(5.0, idle=("env-0",)) == []
    assert w.passes(1000.0, looks=False) == []
    assert w.look() == [], "nobody has had the time to tick"
    assert w.passes(3.0, idle=("env-0",)) == []
    assert w.passes(2.0, idle=("env-0",)) == [(w.worker["env-0"], Kind.CALLING, True)]


@pytest.mark.parametrize(("doing", "times"), [(Doing.COMPUTING, COMPUTING), (Doing.COMPILING, COMPILING)])
def test_what_computes_or_compiles_is_named_and_has_more_time(watched, doing, times):
    w = watched("env | act+learn")
    learner, kind = w.worker["learn-0"], Kind[doing.name]
    w.words("learn-0")[OfSide.DOING] = doing
    assert w.passes(9.0, idle=("learn-0",)) == []
    assert w.passes(2.0, idle=("learn-0",)) == [(learner, kind, False)]
    assert w.passes(10.0 * times - 12.0, idle=("learn-0",)) == []
    assert w.passes(2.0, idle=("learn-0",)) == [(learner, kind, True)]


def test_the_time_that_it_computed_is_not_held_against_a_side_that_is_seen_elsewhere(watched):
    w = watched()
    w.words("learn-0")[OfSide.DOING] = Doing.COMPUTING
    assert w.passes(40.0, idle=("learn-0",)) == [(w.worker["learn-0"], Kind.COMPUTING, False)]
    w.words("learn-0")[OfSide.DOING] = Doing.CALLING
    assert w.passes(5.0, idle=("learn-0",)) == []


def test_environments_that_are_slow_one_after_another_make_progress(watched):
    w = watched()
    for _ in range(10):
        assert w.passes(8.0, idle=("env-0",)) == []
        w.words("env-0")[OfSide.MOVED] += 1


def test_one_side_that_ticks_does_not_hide_another_of_the_same_worker_nor_have_it_told_again(watched):
    w = watched("env | act+learn")
    found = w.passes(60.0, idle=("learn-0",))
    assert found == [(w.worker["learn-0"], Kind.CALLING, True)]


def test_who_is_not_ready_is_judged_by_its_progress_and_has_its_whole_time_afterwards(watched):
    w = watched()
    env = w.worker["env-0"]
    others = w.everyone - {env}
    for _ in range(5):  # it replays
        assert w.passes(START_SECONDS - 10.0, idle=("env-0",), ready=others) == []
        w.words("env-0")[OfSide.MOVED] += 1
    assert w.passes(9.0, idle=("env-0",)) == []
    assert w.passes(2.0, idle=("env-0",)) == [(env, Kind.CALLING, True)]
    assert w.passes(START_SECONDS + 1.0, idle=("env-0",), ready=others) == [(env, Kind.STARTING, True)]


def test_a_worker_that_has_not_come_so_far_as_to_beat_is_not_frozen(watched):
    w = watched()
    w.words("env-0")[OfSide.BEAT] = 0
    w.sides.pop("env-0")
    assert w.passes(START_SECONDS - 10.0, ready=w.everyone - {w.worker["env-0"]}) == []


def test_a_learner_that_waits_for_another_in_what_they_compute_together_is_not_to_blame(watched):
    w = watched("env*2 | act | learn*2")
    both = ("learn-0", "learn-1")
    for name in both:
        w.words(name)[OfSide.DOING] = Doing.COMPUTING
    w.words("learn-0")[OfSide.JOINT] = 7
    w.words("learn-1")[OfSide.JOINT] = 6
    assert w.passes(1000.0, idle=("learn-0",)) == [], "the other has no batch yet, and looks around"
    assert w.passes(11.0, idle=("learn-0",), frozen=("learn-1",)) == [(w.worker["learn-1"], Kind.FROZEN, True)]
    assert w.passes(1.0, idle=("learn-0",)) == []
    w.words("learn-1")[OfSide.DOING] = Doing.CALLING
    assert w.passes(11.0, idle=both) == [(w.worker["learn-1"], Kind.CALLING, True)]
    w.passes(1.0)
    w.words("learn-1")[OfSide.JOINT] = 7
    found = w.passes(11.0, idle=both, frozen=("learn-1",))
    assert (w.worker["learn-1"], Kind.FROZEN, True) in found, "stopped in the computation"
    assert not any(final for worker, _, final in found if worker == w.worker["learn-0"])


def test_a_map_has_the_time_of_what_it_is_in(watched):
    w = watched("(env+act)*2 | mine | learn", graph=loop().insert("mine", same))
    assert w.passes(11.0, idle=("mine-0",)) == [(w.worker["mine-0"], Kind.CALLING, True)]
