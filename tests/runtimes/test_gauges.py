"""What the account of a run in workers tells of its speed; no process is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from drafts import drafted, loop, same

from weft.core.delivery import Delivery
from weft.graph.graph import Graph
from weft.plans import Machine
from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, OfSide, OfWire
from weft.runtimes.workers.counting.gauges import WINDOW, Gauges, message_bytes
from weft.runtimes.workers.side import SideContext
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec
from weft.streams.schema import ArraySpec

SECOND = 1_000_000_000


class Bench:
    """Gauges over an account that a test fills in, at a time that it sets."""

    def __init__(self, plan: str, *, channel: str = "shm", warm_up: int = 0, graph: Graph | None = None) -> None:
        self.blueprint = drafted(plan, 16, Machine(cores=4), graph, channel=channel)
        spec = ChannelSpec("any", (ArraySpec("x", (3, 2), "float32"), ArraySpec("y", (), "bool")), 1, Delivery.BLOCK)
        self.account = Account(len(self.blueprint.sides), len(self.blueprint.wires))
        self.now = 100.0
        specs = {w.name: spec for w in self.blueprint.wires}
        self.gauges = Gauges(self.blueprint, specs, cores=4, warm_up=warm_up, clock=lambda: self.now)

    def work(self, fragment: str, busy: float, waited: float) -> None:
        for side in self.blueprint.sides_of(fragment):
            self.account.sides[side.index][OfSide.BUSY_NS] += int(busy * SECOND)
            self.account.sides[side.index][OfSide.WAIT_NS] += int(waited * SECOND)

    def send(self, stream: str, count: int) -> None:
        """Messages on every wire of a stream."""
        for wire in self.blueprint.wires:
            if wire.stream == stream:
                self.account.wires[wire.index][OfWire.SENT] += count

    def take(self, stream: str, count: int) -> None:
        for wire in self.blueprint.wires:
            if wire.stream == stream:
                self.account.wires[wire.index][OfWire.TAKEN] += count

    def begin(self) -> None:
        self.gauges.begin(self.account)

    def look(self, learned: int = 1) -> None:
        self.gauges.look(self.account, learned)

    def rates(self) -> dict[str, float]:
        return {name: row["messages_per_second"] for name, row in self.gauges.streams().items()}


@pytest.fixture
def made() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(plan: str, **how: object) -> Bench:
        benches.append(Bench(plan, **how))  # type: ignore[arg-type]
        return benches[-1]

    yield make
    for bench in benches:
        bench.account.close()


@pytest.fixture
def srl(made: Callable[..., Bench]) -> Bench:
    return made("env*2 | act | learn")


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
    (act,) = srl.blueprint.sides_of("act")
    srl.account.sides[act.index][OfSide.WAITING] = 1
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


def test_the_queue_is_what_was_sent_and_not_taken(srl: Bench) -> None:
    srl.begin()
    srl.look()
    srl.send("unroll", 7)
    srl.take("unroll", 6)
    srl.send("timestep", 1)
    assert len(srl.blueprint.lanes) == 4  # two slices of each of two env workers; room for two unrolls each
    figures = srl.gauges.figures(srl.account)
    assert figures["queue/unroll"] == 0.5
    assert [name for name in figures if name.startswith("queue/")] == ["queue/unroll"]


def test_the_queue_of_a_stream_with_a_map_on_it_is_that_of_all_its_legs(made: Callable[..., Bench]) -> None:
    bench = made("env*2 | act | mine | learn", graph=loop(16).insert("mine", same))
    bench.begin()
    bench.look()
    for wire in bench.blueprint.wires:
        if wire.source == "mine":
            bench.account.wires[wire.index][OfWire.SENT] = 1  # of two that there is room for; before the map none
    assert bench.gauges.figures(bench.account)["queue/unroll"] == 0.25


def test_while_programs_are_compiled_nobody_is_called_busy(made: Callable[..., Bench]) -> None:
    bench = made("env*2 | act | learn", warm_up=2)
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


def test_messages_are_counted_after_compilation_over_all_lanes(made: Callable[..., Bench]) -> None:
    srl = made("env*2 | act | learn", warm_up=4)
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
    assert srl.rates() == {"timestep": 4 * 50 / 2, "action": 0.0, "unroll": 4 * 10 / 2, "params": 1.5}
    streams = srl.gauges.streams()
    assert {row["bytes_per_message"] for row in streams.values()} == {3 * 2 * 4 + 1}
    assert streams["unroll"]["environments"] == 4
    assert "environments" not in streams["params"]


def test_a_short_run_is_measured_from_where_its_workers_were_ready(srl: Bench) -> None:
    srl.begin()
    assert srl.gauges.streams() == {}
    srl.now += 4.0
    srl.send("unroll", 1)
    srl.look()
    assert srl.rates()["unroll"] == 1.0


def test_what_stays_in_a_worker_is_not_measured(made: Callable[..., Bench]) -> None:
    bench = made("env*2 | act+learn")
    bench.begin()
    bench.now += 1.0
    bench.look()
    assert set(bench.gauges.streams()) == {"timestep", "action"}


@pytest.mark.parametrize("channel", ["shm", "tcp"])
def test_gradients_and_params_are_measured_by_whichever_channel(made: Callable[..., Bench], channel: str) -> None:
    bench = made("(env+act+grad)*2 | apply", channel=channel)
    bench.begin()
    bench.now += 2.0
    bench.account.wires[bench.blueprint.wire("gradients/0").index][OfWire.SENT] = 6
    bench.account.wires[bench.blueprint.wire("params").index][OfWire.SENT] = 4
    bench.look()
    assert bench.rates() == {"gradients": 3.0, "params": 2.0}


def test_stages_are_named_as_the_plan_joins_them(made: Callable[..., Bench]) -> None:
    bench = made("(env+act)*2 | mine+learn", graph=loop(16).insert("mine", same))
    bench.begin()
    bench.look()
    assert set(bench.gauges.shares()) == {"env+act", "mine+learn"}


def test_the_bytes_of_a_message_are_those_of_its_arrays() -> None:
    leaves = (ArraySpec("a", (5,), "float32"), ArraySpec("b", (), "uint8"), ArraySpec("c", (0, 9), "int64"))
    assert message_bytes(ChannelSpec("x", leaves, 1, Delivery.BLOCK)) == 21


def test_a_side_that_never_waits_is_seen_to_be_busy() -> None:
    account, bell = Account(1, 1), Bell()
    link, theirs = Link.pair()
    context = SideContext(0, "learn-0", bell, account, link)
    try:
        context.tick()  # what was before, loading and making, is no work
        assert account.sides[0][OfSide.BUSY_NS] == 0
        context.tick()
        once = int(account.sides[0][OfSide.BUSY_NS])
        assert once > 0
        bell.ring()
        context.wait()
        assert account.sides[0][OfSide.WAIT_NS] > 0
        assert account.sides[0][OfSide.TICK] == 3
    finally:
        link.close()
        theirs.close()
        bell.close()
        account.close()
