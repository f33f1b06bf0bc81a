"""The ledger balances, and nothing is trained on twice, at whichever store a worker is killed. No process, no JAX.

The real ends are put together as workers do it; a fuse burns down with every store into the account, every commit and
every release, and what burns it out is killed: its next life is made, as the runtime makes it, and goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drafts import drafted

from weft.core.delivery import Delivery
from weft.runtimes.hosted.blocks import Block
from weft.runtimes.roles.unroll_writer import UnrollWriter
from weft.runtimes.workers.collector import Collector, UnrollReader
from weft.runtimes.workers.counting.account import Account, OfLearner
from weft.runtimes.workers.counting.ledger import AccountLedger
from weft.runtimes.workers.gradients import GradientReader, GradientWriter
from weft.runtimes.workers.layout.blueprint import Lane
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec
from weft.streams.registry import create, open_reader, open_writer
from weft.telemetry.ledger import Ledger

ROUNDS, UNROLL = 4, 5
MAX_LAG = 1


class Killed(Exception):
    pass


class Fuse:
    """Burns out at the ``left``-th touch from now."""

    def __init__(self, left: int) -> None:
        self.left = left

    def touch(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


class Words(np.ndarray):
    """Words of the account; a store into them may be one too many."""

    fuse: Fuse

    def __array_finalize__(self, base: Any) -> None:
        self.fuse = getattr(base, "fuse", None)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.fuse.touch()
        super().__setitem__(key, value)


class End:
    """A reading or writing end whose commits and releases burn the fuse."""

    def __init__(self, end: Any, fuse: Fuse) -> None:
        self._end, self._fuse = end, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    def commit(self, stamp: Any) -> None:
        self._fuse.touch()
        self._end.commit(stamp)

    def release(self, message: Any) -> None:
        self._fuse.touch()
        self._end.release(message)


class Bench:
    """Workers, channels, the account and the books of a plan. ``forgets``: what a killed worker had sent goes too."""

    def __init__(self, plan: str, fuse: Fuse, *, forgets: bool) -> None:
        self.blueprint = drafted(plan)
        self.fuse, self.forgets = fuse, forgets
        lanes, counting = len(self.blueprint.lanes), self.blueprint.counting
        self.account = Account(lanes, 1, counting)
        self.books = AccountLedger(self.blueprint, UNROLL)
        self.books.open(self.account, 0)
        self.steps = self.blueprint.lanes[0].rows * UNROLL
        self.watched = Account(lanes, 1, counting, self.account.fd)  # the same words, as workers see them
        self.watched.lanes, self.watched.learners = self._words(self.account.lanes), self._words(self.account.learners)
        self.bells = Bell(), Bell()
        self.channels: dict[str, list[Any]] = {}
        self.made = self.version = self.kills = 0
        self.trained: list[int] = []  # what the params hold: the numbers of unrolls
        self.checkpoint: list[int] = []
        self.at_the_kill: Ledger | None = None  # of who does not learn
        self.workers = [Worker(self, lane) for lane in self.blueprint.lanes]
        self.learner = Applies(self) if self.blueprint.central else Learns(self)

    def _words(self, words: Any) -> Words:
        view: Words = words.view(Words)
        view.fuse = self.fuse
        return view

    def channel(self, name: str, *, anew: bool = False) -> Any:
        if anew or name not in self.channels:
            spec = ChannelSpec(name, (ArraySpec("unroll", (1,), "int64"),), 3, Delivery.BLOCK, "inproc")
            self.channels.setdefault(name, []).append(create(spec))
        return self.channels[name][-1].spec

    def reader(self, name: str) -> Any:
        return End(open_reader(self.channel(name), self.bells[1], self.bells[0]), self.fuse)

    def writer(self, name: str) -> Any:
        return End(open_writer(self.channel(name), self.bells[0], [self.bells[1]]), self.fuse)

    def collector(self, lanes: list[int], rank: int) -> Collector:
        inlets = [UnrollReader(lane, self.reader(f"unroll/{lane}")) for lane in lanes]
        return Collector(inlets, self.blueprint.pieces, self.watched, rank, lockstep=False, max_lag=MAX_LAG)

    def run(self, rounds: int) -> None:
        """Everybody takes turns; whoever is killed gets a new life, as the runtime gives it, and others go on."""
        for _ in range(rounds):
            for worker in self.workers:
                for step in (worker.act, worker.act, worker.grad):
                    try:
                        step()
                    except Killed:
                        self.kills += 1
                        self.at_the_kill = self.books.ledger()  # others go on and report, before its next life begins
                        worker.live()
                        if self.forgets:
                            self.learner.reconnect(worker.lane.index)
            try:
                for _ in range(3):
                    self.learner.update()
                    if self.version % 2 == 0:
                        self.checkpoint = list(self.trained)
            except Killed:
                self.kills += 1
                self.trained, self.version = list(self.checkpoint), len(self.checkpoint) // self.learner.batch
                self.books.settle(len(self.trained) * self.steps)
                self.learner.live()

    def learned(self, numbers: list[int]) -> None:
        self.trained += numbers
        self.version += 1

    def close(self) -> None:
        for created in self.channels.values():
            for one in created:
                one.close()
        for bell in self.bells:
            bell.close()
        self.account.close()


class Worker:
    """Makes the unrolls of one lane, and gradients of them where the plan says so."""

    def __init__(self, bench: Bench, lane: Lane) -> None:
        self.bench, self.lane, self.life = bench, lane, -1
        self.live()

    def live(self) -> None:
        bench, rank = self.bench, self.lane.index
        self.life += 1
        for name in (f"unroll/{rank}", f"gradients/{rank}"):
            bench.channel(name, anew=bench.forgets)
        block: Any = Block((), (), {}, np.zeros((UNROLL, self.lane.rows)), ())
        spec: Any = None
        self.unrolls = bench.writer(f"unroll/{rank}")
        self.outlet = UnrollWriter(self.lane, self.unrolls, block, spec, bench.watched, self.life)
        if bench.blueprint.central:
            self.collector, writer = bench.collector([rank], rank), bench.writer(f"gradients/{rank}")
            self.gradients = GradientWriter(writer, self.collector, bench.watched, rank, bench.steps, rank, self.life)

    def act(self) -> None:
        place = self.unrolls.reserve(0)
        if place is None:
            return
        version, number = self.bench.version, self.bench.made
        self.outlet.begin(version)
        self.bench.made += 1
        for _ in range(UNROLL):
            self.outlet.count(1)
        place[0][0] = number
        self.outlet.commit(version)

    def grad(self) -> None:
        if not self.bench.blueprint.central:
            return
        place, batch = self.gradients.reserve(), self.collector.collect(self.bench.version)
        if place is not None and batch is not None:
            (message,) = batch
            place[0][0] = message.arrays[0][0]
            self.gradients.send(batch)


class Learns:
    """The learner of a plan with unrolls of all lanes in each batch."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.batch = bench, bench.blueprint.pieces
        self.live()

    def live(self) -> None:
        self.collector = self.bench.collector([lane.index for lane in self.bench.blueprint.lanes], 0)

    def reconnect(self, lane: int) -> None:
        self.collector.inlets[lane].reader = self.bench.reader(f"unroll/{lane}")

    def update(self) -> None:
        batch = self.collector.collect(self.bench.version)
        if batch is not None:
            self.bench.learned([int(message.arrays[0][0]) for message in batch])
            self.collector.trained()


class Applies:
    """Apply, which makes an update of each gradient."""

    batch = 1

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.live()

    def live(self) -> None:
        self.inlets = [self._inlet(lane.index) for lane in self.bench.blueprint.lanes]

    def _inlet(self, rank: int) -> GradientReader:
        return GradientReader(self.bench.reader(f"gradients/{rank}"), self.bench.watched, rank)

    def reconnect(self, lane: int) -> None:
        self.inlets[lane] = self._inlet(lane)

    def update(self) -> None:
        for inlet in self.inlets:
            message = inlet.receive()
            if message is None:
                continue
            lag = self.bench.version - message.stamp.version
            if 0 <= lag <= MAX_LAG:
                self.bench.learned([int(message.arrays[0][0])])
                inlet.done(message, OfLearner.TRAINED)
            else:
                inlet.done(message, OfLearner.STALE if lag > 0 else OfLearner.DIED)


@pytest.mark.parametrize("forgets", [False, True], ids=["memory", "socket"])
@pytest.mark.parametrize(
    "plan", ["(env+act) | learn", "(env+act)*2 | learn", "(env+act+grad) | apply", "(env+act+grad)*2 | apply"]
)
def test_at_whichever_store_a_worker_is_killed_every_sample_is_in_the_ledger_once(plan, forgets):
    never = Fuse(0)
    whole = Bench(plan, never, forgets=forgets)
    whole.run(ROUNDS)
    touches = -never.left
    assert whole.kills == 0
    assert len(whole.trained) >= ROUNDS
    whole.close()
    assert touches > 50
    for kill in range(1, touches + 1):
        fuse = Fuse(-1)
        bench = Bench(plan, fuse, forgets=forgets)
        try:
            fuse.left = kill
            bench.run(ROUNDS)
            bench.run(2)  # what was lost on its way is noticed when the next comes
            ledger = bench.books.ledger()
            assert bench.kills == 1
            assert bench.at_the_kill is None or bench.at_the_kill.balanced, f"store {kill}: {bench.at_the_kill}"
            assert ledger.balanced, f"killed at store {kill}: {ledger}"
            assert ledger.trained == len(bench.trained) * bench.steps
            assert len(set(bench.trained)) == len(bench.trained), f"killed at store {kill}: trained on twice"
            assert all(count >= 0 for count in ledger.dropped.values()), f"killed at store {kill}: {ledger}"
            held = ledger.in_flight // bench.steps
            assert held <= 2 * 3 * len(bench.workers), f"killed at store {kill}: {held} unrolls in flight"
        finally:
            bench.close()
