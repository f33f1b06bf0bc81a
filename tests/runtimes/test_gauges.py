"""What the account of a run in workers tells of its speed; no process is started."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from weft.core.delivery import Delivery
from weft.plans import Machine, parse
from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, OfGrad, OfLane, OfRun, OfWorker
from weft.runtimes.workers.counting.gauges import WINDOW, Gauges, message_bytes
from weft.runtimes.workers.layout.blueprint import Blueprint, Manner, draft
from weft.runtimes.workers.side import SideContext
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec
from weft.streams.schema import Leaf

SECOND = 1_000_000_000


class Bench:
    """Gauges over an account and channels that a test fills in, at a time that it sets."""

    def __init__(self, plan: str, *, channel: str = "shm", warm_up: int = 0) -> None:
        manner = Manner(lockstep=False, max_lag=1, ring=2, channel=channel)
        self.blueprint: Blueprint = draft(parse(plan), 16, Machine(cores=4), manner)
        spec = ChannelSpec("any", (Leaf("x", (3, 2), "float32"), Leaf("y", (), "bool")), 1, Delivery.BLOCK)
        self.channels: dict[str, Any] = {
            w.name: SimpleNamespace(committed=0, spec=w) for w in self.blueprint.wires if w.scheme != "inproc"
        }
        self.account = Account(len(self.blueprint.lanes), len(self.blueprint.sides), self.blueprint.learners)
        self.now = 100.0
        specs = {w.name: spec for w in self.blueprint.wires}
        self.gauges = Gauges(self.blueprint, specs, cores=4, warm_up=warm_up, clock=lambda: self.now)

    def work(self, kind: str, busy: float, waited: float) -> None:
        for side in self.blueprint.kind(kind):
            self.account.sides[side.index][OfWorker.BUSY_NS] += int(busy * SECOND)
            self.account.sides[side.index][OfWorker.WAIT_NS] += int(waited * SECOND)

    def send(self, stream: str, count: int) -> None:
        for wire in self.blueprint.wires:
            if wire.stream == stream:
                self.channels[wire.name].committed += count

    def begin(self) -> None:
        self.gauges.begin(self.account, self.channels)

    def look(self, learned: int = 1) -> None:
        self.gauges.look(self.account, self.channels, learned)


@pytest.fixture
def srl() -> Iterator[Bench]:
    bench = Bench("env*2 | act | learn")
    yield bench
    bench.account.close()


def test_what_was_before_the_workers_were_ready_does_not_count(srl: Bench) -> None:
    srl.work("learn", 60.0, 0.0)
    srl.begin()
    srl.work("learn", 3.0, 1.0)
    srl.work("env", 1.0, 3.0)
    srl.look()
    assert srl.gauges.shares() == {"env": 1.0, "act": 0.0, "learn": 3.0}
    figures = srl.gauges.figures(srl.account)
    assert figures["busy/learn"] == 0.75
    assert figures["busy/env"] == 0.25
    srl.look()
    assert srl.gauges.shares() == {"env": 0.0, "act": 0.0, "learn": 0.0}


def test_load_is_busy_sides_for_each_core(srl: Bench) -> None:
    srl.begin()
    for kind, busy in (("env", 0.5), ("act", 1.0), ("learn", 0.25)):
        srl.work(kind, busy, 1.0 - busy)
    srl.look()
    assert srl.gauges.figures(srl.account)["load"] == (2 * 0.5 + 1.0 + 0.25) / 4


def test_one_long_call_is_busy_before_it_is_counted(srl: Bench) -> None:
    srl.begin()
    (act,) = srl.blueprint.kind("act")
    srl.account.sides[act.index][OfWorker.WAITING] = 1
    srl.look()
    figures = srl.gauges.figures(srl.account)
    assert (figures["busy/learn"], figures["busy/act"]) == (1.0, 0.0)


def test_busy_is_of_late(srl: Bench) -> None:
    srl.begin()
    srl.work("learn", 100.0, 0.0)  # it compiled
    for _ in range(WINDOW):
        srl.look()
        srl.work("learn", 1.0, 3.0)
    srl.look()
    assert srl.gauges.figures(srl.account)["busy/learn"] == 0.25


def test_the_queue_is_what_was_sent_and_not_released(srl: Bench) -> None:
    srl.begin()
    srl.look()
    lanes = srl.account.lanes
    lanes[:, OfLane.COMMITTED] = 7
    lanes[:, OfLane.RELEASED] = 6
    assert len(lanes) == 4  # two slices of each of two env workers; room for two unrolls each
    assert srl.gauges.figures(srl.account)["queue/unroll"] == 0.5


def test_while_programs_are_compiled_nobody_is_called_busy() -> None:
    bench = Bench("env*2 | act | learn", warm_up=2)
    bench.begin()
    bench.work("learn", 30.0, 0.0)
    bench.look(1)
    assert bench.gauges.shares() == {}
    assert set(bench.gauges.figures(bench.account)) == {"queue/unroll"}
    bench.look(1)
    assert set(bench.gauges.figures(bench.account)) == {"queue/unroll"}
    bench.work("learn", 1.0, 1.0)
    bench.look(1)
    assert bench.gauges.shares()["learn"] == 1.0
    assert bench.gauges.figures(bench.account)["busy/learn"] == 0.5
    bench.account.close()


def test_messages_are_counted_after_compilation_over_all_lanes() -> None:
    srl = Bench("env*2 | act | learn", warm_up=4)
    srl.begin()
    for learned in (1, 2, 1):  # the third look is after four learn steps: compiled
        srl.now += 10.0
        srl.send("timestep", 1)
        srl.look(learned)
    srl.now += 2.0
    srl.send("timestep", 50)
    srl.send("unroll", 10)
    srl.send("params", 3)
    srl.look()
    streams = srl.gauges.streams()
    assert {name: row["messages_per_second"] for name, row in streams.items()} == {
        "timestep": 4 * 50 / 2,
        "action": 0.0,
        "unroll": 4 * 10 / 2,
        "params": 1.5,
    }
    assert {row["bytes_per_message"] for row in streams.values()} == {3 * 2 * 4 + 1}
    assert streams["unroll"]["environments"] == 4
    assert "environments" not in streams["params"]
    srl.account.close()


def test_a_short_run_is_measured_from_where_its_workers_were_ready(srl: Bench) -> None:
    srl.begin()
    assert srl.gauges.streams() == {}
    srl.now += 4.0
    srl.send("unroll", 1)
    srl.look()
    assert srl.gauges.streams()["unroll"]["messages_per_second"] == 1.0


def test_what_stays_in_a_worker_is_not_measured() -> None:
    bench = Bench("env*2 | act+learn")
    bench.begin()
    bench.now += 1.0
    bench.look()
    assert set(bench.gauges.streams()) == {"timestep", "action"}
    bench.account.close()


def test_over_sockets_the_account_tells() -> None:
    bench = Bench("(env+act+grad)*2 | apply", channel="tcp")
    bench.begin()
    bench.now += 2.0
    bench.account.run[OfRun.VERSION] = 6
    bench.account.learners[0][OfGrad.SENT] = 6
    bench.look()
    streams = bench.gauges.streams()
    assert {name: row["messages_per_second"] for name, row in streams.items()} == {"gradients": 3.0, "params": 3.0}
    bench.account.close()
    bench = Bench("env*2 | act | learn", channel="tcp")
    bench.begin()
    bench.now += 2.0
    bench.account.lanes[:, OfLane.PRODUCED] = 40
    bench.account.lanes[:, OfLane.COMMITTED] = 2
    bench.look()
    streams = bench.gauges.streams()
    assert streams["timestep"]["messages_per_second"] == streams["action"]["messages_per_second"] == 4 * 40 / 4 / 2
    assert streams["unroll"]["messages_per_second"] == 4.0
    bench.account.close()


def test_stages_are_named_as_the_plan_joins_them() -> None:
    bench = Bench("(env+act)*2 | learn")
    bench.begin()
    bench.look()
    assert set(bench.gauges.shares()) == {"env+act", "learn"}
    bench.account.close()


def test_the_bytes_of_a_message_are_those_of_its_arrays() -> None:
    leaves = (Leaf("a", (5,), "float32"), Leaf("b", (), "uint8"), Leaf("c", (0, 9), "int64"))
    assert message_bytes(ChannelSpec("x", leaves, 1, Delivery.BLOCK)) == 21


def test_a_side_that_never_waits_is_seen_to_be_busy() -> None:
    account, bell = Account(1, 1, 1), Bell()
    link, theirs = Link.pair()
    post = SideContext(0, "learn-0", bell, account, link)
    try:
        post.tick()  # what was before, loading and making, is no work
        assert account.sides[0][OfWorker.BUSY_NS] == 0
        post.tick()
        once = int(account.sides[0][OfWorker.BUSY_NS])
        assert once > 0
        bell.ring()
        post.wait()
        assert account.sides[0][OfWorker.WAIT_NS] > 0
        assert account.sides[0][OfWorker.TICK] == 3
    finally:
        link.close()
        theirs.close()
        bell.close()
        account.close()
