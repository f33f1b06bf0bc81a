"""Which unrolls make a batch, with channels in memory: no process, no JAX."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.core.delivery import Delivery
from weft.core.errors import ChannelClosed
from weft.runtimes.synchrony import synchrony
from weft.runtimes.workers import collector as collector_module
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import Account, Fate, OfWire
from weft.runtimes.workers.layout.blueprint import Wire
from weft.runtimes.workers.wires import WireReader, WireWriter
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec
from weft.streams.registry import create, open_reader, open_writer

STEPS = 10  # environment steps of an unroll


class Table:
    """Lanes' channels with a collector at their end. ``send`` makes an unroll of a lane with params of a version."""

    def __init__(self, lanes: int = 3, *, capacity: int = 4, lockstep=False, max_lag=1, looks=False):
        self.looks = looks  # at what comes next, as a learner does whose device is busy
        self.account = Account(2, lanes)  # side 0 acts, side 1 learns
        self.bells = Bell(), Bell()
        self.synchrony = synchrony(lockstep, max_lag)
        spec = ChannelSpec("unroll", (ArraySpec("x", (1,), "int64"),), capacity, Delivery.BLOCK, "inproc")
        self.created = [create(spec) for _ in range(lanes)]
        self.wires = [
            Wire(
                i, f"unroll/{i}", "unroll", "act", 0, (1,), i, "inproc", capacity, Delivery.BLOCK, False, STEPS, max_lag
            )
            for i in range(lanes)
        ]
        self.writers = [self.writer(lane) for lane in range(lanes)]
        self.collector = self.learner()

    def writer(self, lane: int, life: int = 0) -> WireWriter:
        """The writer of a lane in one of its lives."""
        made = open_writer(self.created[lane].spec, self.bells[0], [self.bells[1]])
        return WireWriter(self.wires[lane], made, self.account, life)

    def learner(self, life: int = 0) -> Collector:
        """The learner's collector, in one of its lives."""
        readers = [open_reader(c.spec, self.bells[1], self.bells[0]) for c in self.created]
        return Collector(
            [WireReader(w, r, self.account, 1, life) for w, r in zip(self.wires, readers, strict=True)], self.synchrony
        )

    def send(self, lane: int, version: int = 0) -> None:
        writer = self.writers[lane]
        places = writer.reserve()
        assert places is not None
        np.copyto(places[0], [lane])
        writer.commit(version)

    def begin(self, lane: int, version: int) -> None:
        self.writers[lane].begin(version)

    def collect(self, version: int = 0) -> list[tuple[int, int]] | None:
        """The batch as (lane, version), where there is one."""
        batch = self.collector.collect(version)
        if self.looks and batch is not None:
            self.collector.look()
        return None if batch is None else [(m.stamp.producer, m.stamp.version) for m in batch]

    def train(self, version: int = 0, count: bool = True) -> None:
        """Train on the batch that was collected."""
        self.collector.count_lags(version)
        self.collector.trained(version + 1, count=count)
        if self.looks:
            self.collector.look()

    def counted(self, fate: Fate) -> int:
        return int(self.account.sides[1][fate])

    def released(self) -> list[int]:
        """Messages accounted for, by lane; their slots have gone back."""
        taken = self.account.wires[:, OfWire.TAKEN].tolist()
        assert [writer.released for writer in self.writers] == taken
        return taken

    def check(self) -> None:
        """What was accounted for is trained on or dropped, and nothing twice."""
        fates = sum(self.counted(fate) for fate in (Fate.TRAINED, Fate.STALE, Fate.DIED, Fate.LOST))
        assert fates == STEPS * sum(self.account.wires[:, OfWire.TAKEN].tolist())

    def close(self) -> None:
        for created in self.created:
            created.close()
        for bell in self.bells:
            bell.close()
        self.account.close()


@pytest.fixture(params=[False, True], ids=["", "looks ahead"])
def table(request):
    """All that is said here holds for a learner that looks ahead too."""
    made = []

    def make(*args, **how):
        made.append(Table(*args, looks=request.param, **how))
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
    t.train()
    assert t.released() == [1, 1, 1]
    assert t.counted(Fate.TRAINED) == 3 * STEPS
    assert t.account.wires[:, OfWire.AFTER].tolist() == [1, 1, 1], "act may begin with params of version 1"
    assert t.collect(1) is None
    t.check()


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
    t.train()
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
    t.train()
    assert t.counted(Fate.STALE) == 0


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
        t.train()


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
    assert t.counted(Fate.STALE) == 2 * STEPS
    assert t.released() == [2, 0]
    t.send(0, 4)
    assert sorted(t.collect(5)) == [(0, 4), (1, 5)]
    t.train()
    assert (t.counted(Fate.STALE), t.counted(Fate.TRAINED)) == (2 * STEPS, 2 * STEPS)


def test_what_params_made_that_died_with_their_learner_is_counted_apart(table):
    t = table(1, max_lag=1)
    t.send(0, 7)
    t.send(0, 3)
    assert t.collect(3) == [(0, 3)]
    assert t.counted(Fate.DIED) == STEPS
    assert t.counted(Fate.STALE) == 0


def test_what_was_made_by_params_that_are_published_meanwhile_is_no_loss(table):
    """A side that computes gradients asks which version is published, and may then sleep while act uses the next."""
    t = table(1, max_lag=1)
    t.send(0, 4)
    t.send(0, 6)
    t.collector = Collector(t.collector.readers, t.synchrony, newest=lambda: 4)
    assert t.collect(3) == [(0, 4)]
    t.train()
    assert t.collect(4) is None, "what nobody has published was made by params that died"
    assert (t.counted(Fate.TRAINED), t.counted(Fate.DIED)) == (STEPS, STEPS)


def test_what_is_dropped_behind_one_that_is_kept_goes_back_after_it(table):
    """After a learner's death a lane may have: one made by the params that are back, one by those that died."""
    t = table(2, max_lag=1)
    t.send(0, 3)
    t.send(0, 7)
    t.send(0, 3)
    assert t.collect(3) == [(0, 3), (0, 3)], "more of the quick, in place of the slow"
    assert t.counted(Fate.DIED) == 0, "counted when its slot goes back"
    assert t.released() == [0, 0]
    t.train()
    assert t.released() == [3, 0]
    assert (t.counted(Fate.DIED), t.counted(Fate.TRAINED)) == (STEPS, 2 * STEPS)
    t.send(0, 4)
    t.send(1, 4)
    assert sorted(t.collect(4)) == [(0, 4), (1, 4)]


def test_lags_are_counted_by_unrolls(table):
    t = table(2, max_lag=2)
    t.send(0, 4)
    t.send(1, 3)
    t.collect(5)
    assert t.collector.lags == {}, "not before it is trained on"
    t.train(5)
    assert t.collector.lags == {1: 1, 2: 1}


def test_who_else_counts_what_was_trained_on_is_left_to_it(table):
    t = table(1)
    t.send(0)
    t.collect(0)
    t.train(count=False)
    assert t.counted(Fate.TRAINED) == 0
    assert t.released() == [1]


def test_turns_are_taken_so_that_no_lane_is_always_first(table):
    t = table(3)
    first = []
    for _ in range(6):
        for lane in range(3):
            t.send(lane)
        first.append(t.collect(0)[0][0])
        t.train()
    assert first == [0, 1, 2, 0, 1, 2]


def test_a_successor_finds_what_its_predecessor_had_taken_and_not_released(table):
    t = table(2)
    t.send(0)
    t.send(1)
    assert t.collect(0) is not None  # and dies
    t.collector = t.learner(life=1)
    assert sorted(t.collect(0)) == [(0, 0), (1, 0)]
    t.train()
    assert t.released() == [1, 1]
    assert t.account.wires[:, OfWire.READER_LIFE].tolist() == [1, 1]
    t.check()


def test_a_successor_leaves_alone_what_its_predecessor_had_accounted_for(table):
    t = table(1, lockstep=True)
    t.send(0)
    assert t.collect(0) is not None
    t.collector.readers[0].account(Fate.TRAINED)  # and dies before the slot goes back
    t.send(0, 1)
    t.collector = t.learner(life=1)
    assert t.collect(1) == [(0, 1)], "not the one that was trained on"
    assert t.counted(Fate.TRAINED) == STEPS
    t.train(1)
    assert t.released() == [2]
    t.check()


def test_what_a_killed_sender_numbered_and_never_sent_is_lost_and_counted_once(table):
    t = table(2)
    t.send(0)
    t.account.wires[0][OfWire.SENT] += 1  # numbered, and killed before it was sent
    t.writers[0] = t.writer(0, life=1)
    assert t.writers[0].sequence == 2
    t.send(0)
    t.send(1)
    assert sorted(t.collect(0)) == [(0, 0), (1, 0)]
    t.train()
    assert t.counted(Fate.LOST) == 0, "it is found when the next one comes"
    t.send(1)
    assert sorted(t.collect(0)) == [(0, 0), (1, 0)]
    t.train()
    assert t.counted(Fate.LOST) == STEPS
    assert t.account.wires[:, OfWire.TAKEN].tolist() == [3, 2]
    t.check()


def test_wires_of_their_own_bounds_are_judged_by_them(table):
    """Where gradients are applied singly, versions are counted faster."""
    t = table(2, max_lag=1)
    t.collector.readers[1].wire = replace(t.wires[1], max_lag=5)
    t.send(0, 0)
    t.send(1, 0)
    assert t.collect(4) is None
    assert t.counted(Fate.STALE) == STEPS
    t.send(0, 4)
    assert sorted(t.collect(4)) == [(0, 4), (1, 0)]
    t.train(4)
    t.check()


def test_what_was_looked_at_is_what_comes_next_and_is_not_accounted_for(table):
    t = table(2)
    for lane in (0, 1, 0, 1):
        t.send(lane)
    assert t.collect() == [(0, 0), (1, 0)]
    seen = t.collector.look()
    assert sorted((m.stamp.producer, m.stamp.sequence) for m in seen) == [(0, 1), (1, 1)]
    assert t.released() == [0, 0]
    t.train()
    assert t.released() == [1, 1]
    assert {id(message) for message in t.collector.collect(1)} == {id(message) for message in seen}


def test_in_lockstep_nothing_is_looked_at(table):
    t = table(2, lockstep=True)
    for lane in (0, 1, 0):
        t.send(lane)
    assert t.collect() is not None
    assert t.collector.look() == []


def test_a_writer_that_closed_is_seen_by_the_next_batch_and_not_by_a_look_ahead():
    """A look may be in the middle of a learn call: what was collected is trained on, and the close is raised then."""
    table = Table(2)
    table.send(0)
    table.send(1)
    assert table.collect() == [(0, 0), (1, 0)]
    table.send(1)
    for writer in table.writers:
        writer.writer.close()
    assert [message.stamp.producer for message in table.collector.look()] == [1]
    table.train()
    assert [message.stamp.producer for message in table.collector.look()] == [1], "and again: nothing is forgotten"
    assert table.counted(Fate.TRAINED) == 2 * STEPS
    with pytest.raises(ChannelClosed):
        table.collect(1)
