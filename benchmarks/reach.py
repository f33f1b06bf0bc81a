"""How many producers one learn host holds, and how fast params reach as many: ``python -m benchmarks.reach``.

Producers are channels with the real protocol, keys, credit and numbering, thousands of them spread over processes on
this machine (``reach_far.py``). This process is the learn host: it opens their readers, collects batches as a learner
does (``Collector``), and releases them; nothing is learned. At the end the ledger must balance, and every message that
was sent must have been taken.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.core.delivery import Delivery
from weft.runtimes.synchrony import BoundedLag
from weft.runtimes.workers.collector import Collector
from weft.runtimes.workers.counting.account import Account, OfWire
from weft.runtimes.workers.counting.ledger import AccountLedger
from weft.runtimes.workers.layout.blueprint import Blueprint, Host, Lane, Side, Wire, Worker
from weft.runtimes.workers.wires import WireReader
from weft.streams import registry
from weft.streams.bell import Bell
from weft.streams.channel import ArraySpec, ChannelSpec
from weft.streams.registry import open_reader

STEPS_A_SECOND = 200
"""Of one producer: SRL reports 644,000 frames a second of Atari on 800 cores; with a frame skip of 4, 201 each."""

COUNTS = (100, 1_000, 5_000, 15_000)
EACH = 500  # producers in one process
PARAMS = 9_000  # float32: the two towers of 64 and 64 that CartPole has
FAR = str(Path(__file__).with_name("reach_far.py"))


class Kind(NamedTuple):
    """An unroll: its steps, and the arrays of a step."""

    name: str
    steps: int
    observation: tuple[int, ...]
    dtype: str

    def arrays(self) -> tuple[ArraySpec, ...]:
        """One environment's block: T + 1 observations, and of each step what learn needs."""
        scalars = [ArraySpec(name, (self.steps, 1), "float32") for name in ("action", "reward", "discount", "logits")]
        return (ArraySpec("observation", (self.steps + 1, 1, *self.observation), self.dtype), *scalars)


KINDS = {kind.name: kind for kind in (Kind("small", 200, (4,), "float32"), Kind("atari", 20, (84, 84), "uint8"))}


class Figures(NamedTuple):
    """One row of the table."""

    producers: int
    connected: float  # seconds until every producer's first message has come
    messages: float  # a second, once all were connected
    asked: float  # what the producers would send if nothing held them back
    megabytes: float  # a second
    wake: float  # microseconds of a look at all readers where one has a message
    memory: float  # bytes of this process for each producer
    descriptors: int
    lost: int


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def blueprint_of(count: int, kind: Kind) -> Blueprint:
    """``(env+act)*COUNT | learn`` by hand: a lane, a worker and a wire for each producer."""
    sides = [Side(i, "act", ("env", "act"), i, count, i, (i,)) for i in range(count)]
    sides.append(Side(count, "learn", ("learn",), 0, 1, count, tuple(range(count))))
    workers = [Worker(i, f"env+act-{i}", (i,), "cpu", True) for i in range(count)]
    workers.append(Worker(count, "learn-0", (count,), "cpu", True))
    wires = [
        Wire(i, f"unroll/{i}", "unroll", "act", i, (count,), i, "tcp", 2, Delivery.BLOCK, False, kind.steps, 1 << 40)
        for i in range(count)
    ]
    lanes = tuple(Lane(i, i, 1) for i in range(count))
    synchrony = BoundedLag(1 << 40)
    return Blueprint((Host(0, "here"),), tuple(workers), tuple(sides), lanes, tuple(wires), synchrony, ("learn",))


@contextmanager
def far(*arguments: str, fds: tuple[int, ...]) -> Iterator[subprocess.Popen[str]]:
    """A process of ``reach_far.py``; told to end by its stdin."""
    process = subprocess.Popen(
        [sys.executable, FAR, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=fds
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()


def say(processes: list[subprocess.Popen[str]], line: str) -> list[str]:
    """One line to each; one line of each in answer."""
    for process in processes:
        assert process.stdin is not None
        print(line, file=process.stdin, flush=True)
    return [process.stdout.readline() for process in processes if process.stdout is not None]


def unrolls(count: int, kind: Kind, seconds: float, rate: float = STEPS_A_SECOND) -> Figures:
    """``count`` producers, each with ``rate`` steps a second, for ``seconds`` once all are connected."""
    plan = blueprint_of(count, kind)
    specs = [ChannelSpec(w.name, kind.arrays(), w.capacity, w.delivery, w.scheme) for w in plan.wires]
    before = resident()
    with ExitStack() as stack:
        account = Account(len(plan.sides), count)
        stack.callback(account.close)
        ledger = AccountLedger(plan)
        ledger.open(account, {}, 0)
        together = getattr(registry, "create_together", None)  # an older checkout has a listener for each
        created = together(specs) if together else [registry.create(spec) for spec in specs]
        bell = Bell()
        stack.callback(bell.close)
        for channel in created:
            stack.callback(channel.close)
        readers = []
        for wire, channel in zip(plan.wires, created, strict=True):
            end = open_reader(channel.spec, bell)
            stack.callback(end.close)
            readers.append(WireReader(wire, end, account, count))
        collector = Collector(readers, plan.synchrony)
        began = time.perf_counter()
        producers = []
        for first in range(0, count, EACH):
            mine = created[first : first + EACH]
            told = {
                "account": [account.fd, len(plan.sides), count],
                "wires": [[w.index, w.samples] for w in plan.wires[first : first + EACH]],
                "channels": [channel.spec.to_json() for channel in mine],
                "period": kind.steps / rate,
            }
            fds = {account.fd, *(fd for channel in mine for fd in channel.fds)}
            process = stack.enter_context(far("produce", fds=tuple(fds)))
            assert process.stdin is not None
            print(json.dumps(told), file=process.stdin, flush=True)
            producers.append(process)
        taking = Taking(collector, bell, account)
        while int((account.wires[:, OfWire.TAKEN] > 0).sum()) + taking.in_batch() < count:
            taking.once()
        connected = time.perf_counter() - began
        descriptors, memory = len(os.listdir("/proc/self/fd")), resident() - before
        say(producers, "go")
        already, began = taking.total + taking.in_batch(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            taking.once()
        messages = (taking.total + taking.in_batch() - already) / (time.perf_counter() - began)
        stop = threading.Thread(target=say, args=(producers, "stop"))  # they end when all that they sent was taken
        stop.start()
        while stop.is_alive() or int((account.wires[:, OfWire.SENT] - account.wires[:, OfWire.TAKEN]).sum()):
            taking.once(rest=True)
        stop.join()
        wake = taking.wake()
        found = ledger.ledger(seconds=2.0)
        sent = int(account.wires[:, OfWire.SENT].sum())
        lost = sent - taking.total + found.in_flight + sum(found.dropped.values()) + (0 if found.balanced else 1)
        each = sum(np.prod(a.shape) * np.dtype(a.dtype).itemsize for a in kind.arrays())
        asked = count * rate / kind.steps
        return Figures(
            count, connected, messages, asked, messages * each / 1e6, wake, memory / count, descriptors, lost
        )


class Taking:
    """The learner's loop, without learning: collect, release, wait for the bell."""

    def __init__(self, collector: Collector, bell: Bell, account: Account) -> None:
        self._collector, self._bell, self._account = collector, bell, account
        self.total = 0  # messages that were used

    def in_batch(self) -> int:
        """Messages that are held for a batch which is not complete."""
        return len(self._collector._batch)

    def once(self, *, rest: bool = False) -> None:
        """Collect what there is; a batch that is complete is used. ``rest``: one that is not, too."""
        complete = self._collector.collect(0)
        if complete is not None or (rest and self._collector._batch):
            self.total += self.in_batch()
            self._collector.trained(0)
        else:
            self._bell.wait(0.05)

    def wake(self) -> float:
        """Microseconds of a look while nothing comes, the median of some."""
        took = []
        for _ in range(20):
            began = time.perf_counter()
            self._collector.collect(0)
            took.append(time.perf_counter() - began)
        return sorted(took)[len(took) // 2] * 1e6


class Spread(NamedTuple):
    """Seconds from a commit until the last has the version, medians over the versions."""

    readers: int
    relays: int
    relayed: float  # the last relay
    read: float  # the last reader


def params(count: int, relays: int, versions: int, tell: Callable[[str], None]) -> Spread:
    """``count`` readers, in shared memory behind ``relays`` that follow this process over tcp."""
    from weft.streams.channel import Stamp
    from weft.streams.registry import create, open_writer

    spec = ChannelSpec("params", (ArraySpec("params", (PARAMS,), "float32"),), 1, Delivery.LATEST, "tcp")
    with ExitStack() as stack:
        created = create(spec)
        stack.callback(created.close)
        bell = Bell()
        stack.callback(bell.close)
        writer = open_writer(created.spec, bell)
        stack.callback(writer.close)
        hosts = []
        for number in range(relays):
            share = count * (number + 1) // relays - count * number // relays
            process = stack.enter_context(far("relay", fds=created.fds))
            assert process.stdin is not None
            print(json.dumps({"params": created.spec.to_json(), "readers": share}), file=process.stdin, flush=True)
            hosts.append(process)
        for process in hosts:
            assert process.stdout is not None
            process.stdout.readline()
        relayed, read = [], []
        for version in range(1, versions + 2):
            began = time.monotonic()
            writer.send([np.full(PARAMS, version, np.float32)], Stamp(version=version))
            answers = [json.loads(line) for line in say(hosts, str(version))]
            if version > 1:  # the first also waits for connections
                relayed.append(max(answer["relayed"] for answer in answers) - began)
                read.append(max(answer["read"] for answer in answers) - began)
        tell(f"params to {count:,} readers")
        middle = len(read) // 2
        return Spread(count, relays, sorted(relayed)[middle], sorted(read)[middle])


def main(arguments: list[str] | None = None) -> int:
    """Run it, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of one row, once all producers are connected")
    parser.add_argument("--steps", type=float, default=STEPS_A_SECOND, help="a second, of one producer")
    parser.add_argument("--relays", type=int, default=30, help="for the params; 0 leaves them out")
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few producers, a short time: does it work")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.counts, asked.seconds, asked.relays, asked.versions = [40], 0.5, 2, 2
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    short = [n for n in asked.counts if n + 100 > hard]
    if short:
        parser.error(f"{short[0]:,} connections need as many descriptors, and the hard limit is {hard:,} (ulimit -Hn)")

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    for name in asked.kinds:
        kind, rows = KINDS[name], []
        for count in asked.counts:
            rows.append(unrolls(count, kind, asked.seconds, asked.steps))
            tell(f"{name}: {rows[-1]}")
        each = sum(np.prod(a.shape) * np.dtype(a.dtype).itemsize for a in kind.arrays()) / 1000
        print(f"\n{name}: unrolls of {kind.steps} steps, {each:,.1f} kB, {asked.steps:g} steps/s from each producer\n")
        print("| producers | connected, s | unrolls/s | asked | env steps/s | MB/s | wake, µs | kB each | fds | lost |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for f in rows:
            print(
                f"| {f.producers:,} | {f.connected:.1f} | {f.messages:,.0f} | {f.asked:,.0f} | "
                f"{f.messages * kind.steps:,.0f} | {f.megabytes:,.0f} | {f.wake:,.0f} | {f.memory / 1000:,.0f} | "
                f"{f.descriptors:,} | {f.lost} |"
            )
        if any(f.lost for f in rows):
            print("\nNOT as promised: something was lost")
            return 1
    if asked.relays:
        print(f"\nparams of {PARAMS * 4 / 1000:,.0f} kB, medians of {asked.versions} versions\n")
        print("| readers | relays | last relay, ms | last reader, ms |\n|---|---|---|---|")
        for count in asked.counts:
            spread = params(count, min(asked.relays, count), asked.versions, tell)
            times = f"{spread.relayed * 1000:,.1f} | {spread.read * 1000:,.1f}"
            print(f"| {spread.readers:,} | {spread.relays} | {times} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
