"""Hostile bytes at a tcp channel that is in use: ``python -m benchmarks.fuzz``.

A writer sends messages to this process without pause. In every other block of time two processes fuzz the reader's
port, a stranger and an insider (``fuzz_far.py``). The table says what it cost: nothing may crash, memory may grow by
less than 64 MB, and the throughput may fall by less than 5% of that in the blocks between. It ends with 1 where that is
not so. Their rate is limited, or the fuzzers would take the cores that the channel needs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.streams import Far
from weft.core.delivery import Delivery
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec
from weft.streams.registry import create, open_reader
from weft.streams.schema import array_specs
from weft.streams.tally import TALLY

MESSAGE = 1 << 16  # bytes: an unroll of a small environment
FUZZER = "benchmarks.fuzz_far"
WARM_UP = 1.0  # seconds
BATCH = 20  # messages between two looks at the clock


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Use:
    """The channel, used as fast as it goes."""

    def __init__(self, stack: ExitStack) -> None:
        self.created = create(ChannelSpec("fuzzed", array_specs(np.ones(MESSAGE, np.uint8)), 4, Delivery.BLOCK, "tcp"))
        stack.callback(self.created.close)
        bells = Bell(), Bell()
        for bell in bells:
            stack.callback(bell.close)
        mine, theirs = bells
        self.spec = self.created.spec
        self._reader = open_reader(self.spec, mine, theirs)
        stack.callback(self._reader.close)
        fds = (*self.created.fds, *mine.fds, *theirs.fds)
        self._far = Far(stack, "weft", fds, spec=self.spec.to_json(), bells=[theirs.fds, mine.fds], fill=False)
        self._next = 0

    def rate(self, seconds: float) -> float:
        """Messages a second over about ``seconds``; each must be the next one, and whole."""
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self._far.go(BATCH)
            for _ in range(BATCH):
                message = self._reader.receive(30)
                if message is None or message.place != self._next or message.arrays[0].nbytes != MESSAGE:
                    raise RuntimeError(f"message {self._next} did not come: {message}")
                self._next += 1
                self._reader.release(message)
            self._far.ended()
            count += BATCH
        return count / (time.perf_counter() - began)


def fuzz(frames: int, rate: float, block: int, tell: Any = print) -> dict[str, float]:
    """Fuzz with ``frames`` frames, half of them by each, in blocks of ``block``; the figures of the table."""
    with ExitStack() as stack:
        use = Use(stack)
        told = {"address": use.spec.address, "rate": rate / 2}
        fuzzers = [
            Far(stack, kind, use.created.fds if kind == "insider" else (), FUZZER, seed=seed, **told)
            for seed, kind in enumerate(("stranger", "insider"))
        ]
        use.rate(WARM_UP)
        seconds = block / rate
        memory, strangers, refused = resident(), TALLY.strangers, TALLY.frames
        ratios, heard, sent = [], 0.0, 0
        while sent < frames:
            before = use.rate(seconds / 2)
            for fuzzer in fuzzers:
                fuzzer.go(block // 2)
            during = use.rate(seconds)
            heard += sum(fuzzer.ended() for fuzzer in fuzzers)
            after = use.rate(seconds / 2)
            sent += block
            ratios.append(during / ((before + after) / 2))
            tell(f"{sent:>9,} of {frames:,} frames   {during:,.0f} messages/s, {ratios[-1]:.3f} of those between")
        return {
            "frames sent": sent,
            "connections refused": TALLY.strangers - strangers,
            "messages refused": TALLY.frames - refused,
            "bytes told to a stranger or in answer": heard,
            "memory grew, MB": (resident() - memory) / 1e6,
            "throughput, of that between (median)": statistics.median(ratios),
            "throughput, the least": min(ratios),
            "throughput, the most": max(ratios),
        }


def main(arguments: list[str] | None = None) -> int:
    """Run it, print the table, and say whether the promises hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=1000.0, help="frames a second, of both fuzzers together")
    parser.add_argument("--block", type=int, default=10_000, help="frames of one block")
    asked = parser.parse_args(arguments)
    figures = fuzz(asked.frames, asked.rate, asked.block, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n| figure | value |\n|---|---|")
    for name, value in figures.items():
        print(f"| {name} | {value:,.3f} |" if isinstance(value, float) else f"| {name} | {value:,} |")
    grew, kept = figures["memory grew, MB"], figures["throughput, of that between (median)"]
    good = grew < 64 and kept > 0.95 and figures["connections refused"] > 0 and figures["messages refused"] > 0
    print("\nall promises hold" if good else "\nNOT as promised: memory +< 64 MB, throughput −< 5%, all of it refused")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
