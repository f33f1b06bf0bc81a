"""Which unrolls make a batch, with channels in memory: no process, no JAX."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.core.delivery import Delivery
from weft.runtimes.workers import collector as collector_module
from weft.runtimes.workers.collector import Collector, UnrollReader
from weft.runtimes.workers.counting.account import Account, OfLane, OfLearner
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec, Stamp
from weft.streams.registry import create, open_reader, open_writer

STEPS = 10  # environment steps of an unroll


class Table:
    """Lanes' channels with a collector at their end. ``send`` makes an unroll of a lane with params of a version."""

    def __init__(self, lanes: int = 3, *, pieces: int | None = None, capacity: int = 4, lockstep=False, max_lag=1):
        self.account = Account(lanes, 1, 1)
        self.bells = Bell(), Bell()
        spec = ChannelSpec("unroll", (ArraySpec("x", (1,), "int64"),), capacity, Delivery.BLOCK, "inproc")
        self.created = [create(spec) for _ in range(lanes)]
        self.writers = [open_writer(c.spec, self.bells[0], [self.bells[1]]) for c in self.created]
        inlets = [
            UnrollReader(i, open_reader(c.spec, self.bells[1], self.bells[0])) for i, c in enumerate(self.created)
        ]
        self.collector = Collector(
            inlets, pieces or lanes, self.account, 0, lockstep=lockstep, max_lag=0 if lockstep else max_lag
        )
        self._sequence = itertools.count()

    def send(self, lane: int, version: int = 0) -> None:
        writer = self.writers[lane]
        stamp = Stamp(lane, 0, writer.committed, version, STEPS)
        assert writer.send([np.array([lane])], stamp, timeout=0)
        self.account.lanes[lane][OfLane.COMMITTED] = writer.committed
        self.account.lanes[lane][OfLane.BEGUN] = 0

    def begin(self, lane: int, version: int) -> None:
        self.account.lanes[lane][OfLane.BEGUN] = 1 + version

    def collect(self, version: int = 0) -> list[tuple[int, int]] | None:
        """The batch as (lane, version), where there is one."""
        batch = self.collector.collect(version)
        return None if batch is None else [(m.stamp.producer, m.stamp.version) for m in batch]

    def counted(self, word: OfLearner) -> int:
        return int(self.account.learners[0][word])

    def released(self) -> list[int]:
        return self.account.lanes[:, OfLane.RELEASED].tolist()

    def close(self) -> None:
        for created in self.created:
            created.close()
        for bell in self.bells:
            bell.close()
        self.account.close()


@pytest.fixture
def table():
    made = []

    def make(*args, **how):
        made.append(Table(*args, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_in_lockstep_a_batch_is_one_of_each_lane_in_order_whenever_they_come(table):
    t = table(3, lockstep=True)
    t.send(2)
    t.send(0)
    assert t.collect() is None
    t.send(0, 1)  # already of the next
    assert t.collect() is None
    t.send(1)
    assert t.collect() == [(0, 0), (1, 0), (2, 0)]
    assert t.collect() == [(0, 0), (1, 0), (2, 0)], "until it was trained on, it is the same batch"
    t.collector.trained()
    assert t.released() == [1, 1, 1]
    assert t.counted(OfLearner.TRAINED) == 3 * STEPS
    assert t.collect(1) is None


def test_otherwise_a_batch_has_one_of_each_lane_before_a_second_of_any(table):
    t = table(3)
    for _ in range(3):
        t.send(0)
    t.send(1)
    t.send(2)
    assert sorted(t.collect()) == [(0, 0), (1, 0), (2, 0)]


def test_the_quick_stand_in_for_the_slow_that_can_be_left_for_later(table):
    t = table(3, max_lag=1)
    t.begin(2, 0)  # at version 0 its unroll is new enough for the next batch still
    t.send(0)
    t.send(0)
    t.send(1)
    assert sorted(t.collect(0)) == [(0, 0), (0, 0), (1, 0)]
    t.collector.trained()
    assert t.released() == [2, 1, 0]


def test_a_batch_waits_for_a_lane_that_would_be_too_old_for_the_next(table, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(collector_module.time, "monotonic", lambda: now[0])
    t = table(3, max_lag=1)
    t.begin(2, 0)
    t.send(0, 1)
    t.send(0, 1)
    t.send(1, 1)
    assert t.collect(1) is None, "lane 2 began with version 0: at version 2 it is too old"
    now[0] += collector_module.PATIENCE_SECONDS - 0.1
    assert t.collect(1) is None
    t.send(2, 0)
    assert sorted(t.collect(1)) == [(0, 1), (1, 1), (2, 0)]
    t.collector.trained()
    assert t.counted(OfLearner.STALE) == 0


def test_its_patience_has_an_end_and_begins_anew_with_the_next_batch(table, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(collector_module.time, "monotonic", lambda: now[0])
    t = table(2, max_lag=0)
    for version in (0, 1):
        t.begin(1, version)
        t.send(0, version)
        t.send(0, version)
        assert t.collect(version) is None
        now[0] += collector_module.PATIENCE_SECONDS + 0.1
        assert t.collect(version) == [(0, version), (0, version)]
        t.collector.trained()


def test_a_lane_that_is_not_being_built_is_not_waited_for(table):
    """Its producer is dead, or waits itself."""
    t = table(2, max_lag=0)
    t.send(0)
    t.send(0)
    assert t.collect(0) == [(0, 0), (0, 0)]


def test_what_is_too_old_on_arrival_is_dropped_and_counted_once(table):
    t = table(2, max_lag=1)
    t.send(0, 0)
    t.send(0, 3)
    t.send(1, 5)
    assert t.collect(5) is None
    assert t.counted(OfLearner.STALE) == 2 * STEPS
    assert t.released() == [2, 0]
    t.send(0, 4)
    assert sorted(t.collect(5)) == [(0, 4), (1, 5)]
    t.collector.trained()
    assert (t.counted(OfLearner.STALE), t.counted(OfLearner.TRAINED)) == (2 * STEPS, 2 * STEPS)


def test_what_params_made_that_died_with_their_learner_is_counted_apart(table):
    t = table(1, max_lag=1)
    t.send(0, 7)
    t.send(0, 3)
    assert t.collect(3) == [(0, 3)]
    assert t.counted(OfLearner.DIED) == STEPS
    assert t.counted(OfLearner.STALE) == 0


def test_what_is_dropped_behind_one_that_is_kept_goes_back_after_it(table):
    """After a learner's death a lane may have: one made by the params that are back, one by those that died."""
    t = table(2, max_lag=1)
    t.send(0, 3)
    t.send(0, 7)
    t.send(0, 3)
    assert t.collect(3) == [(0, 3), (0, 3)], "more of the quick, in place of the slow"
    assert t.counted(OfLearner.DIED) == 0, "counted when its slot goes back"
    assert t.released() == [0, 0]
    t.collector.trained()
    assert t.released() == [3, 0]
    assert (t.counted(OfLearner.DIED), t.counted(OfLearner.TRAINED)) == (STEPS, 2 * STEPS)
    t.send(0, 4)
    t.send(1, 4)
    assert sorted(t.collect(4)) == [(0, 4), (1, 4)]


def test_lags_are_counted_by_unrolls(table):
    t = table(2, max_lag=2)
    t.send(0, 4)
    t.send(1, 3)
    t.collect(5)
    assert t.collector.lags == {1: 1, 2: 1}
    t.collector.trained()


def test_who_else_counts_what_was_trained_on_is_left_to_it(table):
    t = table(1)
    t.send(0)
    t.collect(0)
    t.collector.trained(count=False)
    assert t.counted(OfLearner.TRAINED) == 0
    assert t.released() == [1]


def test_a_learner_takes_several_from_few_lanes_where_it_must(table):
    """A batch may want more unrolls than there are lanes here."""
    t = table(2, pieces=4)
    for _ in range(2):
        t.send(0)
        t.send(1)
    assert sorted(t.collect(0)) == [(0, 0), (0, 0), (1, 0), (1, 0)]


def test_turns_are_taken_so_that_no_lane_is_always_last(table):
    t = table(3, pieces=1, capacity=4)
    for lane in range(3):
        for _ in range(2):
            t.send(lane)
    first = []
    for _ in range(6):
        ((lane, _),) = t.collect(0)
        first.append(lane)
        t.collector.trained()
    assert sorted(first) == [0, 0, 1, 1, 2, 2]
    assert set(first[:3]) == {0, 1, 2}


def test_a_successor_finds_what_its_predecessor_had_taken_and_not_released(table):
    t = table(2)
    t.send(0)
    t.send(1)
    assert t.collect(0) is not None  # and dies
    inlets = [UnrollReader(i, open_reader(c.spec, t.bells[1], t.bells[0])) for i, c in enumerate(t.created)]
    t.collector = Collector(inlets, 2, t.account, 0, lockstep=False, max_lag=1)
    assert sorted(t.collect(0)) == [(0, 0), (1, 0)]
    t.collector.trained()
    assert t.released() == [1, 1]
