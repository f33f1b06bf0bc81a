"""What the account tells of a run's speed: how busy each stage is, how full the queues are, what passes each stream.

Pure but for the clock. The launcher only reads: workers never wait for it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

from weft.runtimes.workers.counting.account import Account, OfSide, OfWire
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.streams.channel import ChannelSpec
from weft.streams.registry import SOCKET_SCHEMES
from weft.streams.schema import dtype_of

Streams: TypeAlias = "dict[str, dict[str, float]]"
"""By a stream's name, of a leg behind a map with that map's name too (``unroll.relabel``).

``messages_per_second`` and ``bytes_per_message``; where a message is one lane's, its ``environments``."""

WINDOW = 16
"""Looks that ``busy`` goes back: about four seconds of reports, so that a hint does not flicker."""


class _Look(NamedTuple):
    at: float
    busy: list[int]  # nanoseconds, by side
    waited: list[int]
    messages: dict[str, int]  # by stream, since the workers were started


class Gauges:
    """Follows one set of workers; ``begin`` when they are ready, ``look`` before each report."""

    def __init__(
        self,
        blueprint: Blueprint,
        specs: Mapping[str, ChannelSpec],
        *,
        cores: int,
        warm_up: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.blueprint, self.specs, self.cores, self.warm_up = blueprint, specs, cores, warm_up
        self._working = [side for side in blueprint.sides if side.index not in blueprint.watching]
        self._clock = clock
        self._looks: deque[_Look] = deque(maxlen=WINDOW)
        self._steady: _Look | None = None
        self._learned = 0
        self._stage_seconds: dict[str, float] = {}

    def begin(self, account: Account) -> None:
        """The workers are ready: making environments and loading JAX do not count."""
        first = self._read(account)
        self._looks.clear()
        self._looks.append(first)
        self._steady, self._learned = first, 0
        self._stage_seconds = self._by_stage(first)

    def look(self, account: Account, learned: int) -> None:
        """Read everything, after ``learned`` more learn steps; during the first ``warm_up`` programs are compiled."""
        now = self._read(account)
        if self._learned < self.warm_up <= self._learned + learned:
            self._steady = now
            self._looks.clear()
            self._stage_seconds = self._by_stage(now)
        self._learned += learned
        self._looks.append(now)

    def shares(self) -> dict[str, float]:
        """Seconds of work by stage since this was asked last, a mean over the sides of each; none in the warm-up."""
        if self._learned < self.warm_up:
            return {}
        now = self._by_stage(self._looks[-1])
        new = {stage: max(0.0, seconds - self._stage_seconds.get(stage, 0.0)) for stage, seconds in now.items()}
        self._stage_seconds = now
        return new

    def figures(self, account: Account) -> dict[str, float]:
        """``busy/STAGE``: the part of its time that a stage works, of late; ``load``; ``queue/STREAM``, how full it is.

        ``load`` is how many sides work at a time on the CPU, for each of its cores: above 1 they wait for a core, and
        what they count as work is in part that. During the warm-up there is ``queue/STREAM`` only. Where workers are
        joined by sockets, always: ``refused/connections``, of strangers, and ``refused/messages``, since the run began.
        """
        held: dict[str, list[int]] = {}
        for wire in self.blueprint.wires:
            if wire.samples and wire.lane >= 0:
                words, both = account.wires[wire.index], held.setdefault(wire.stream, [0, 0])
                both[0] += max(0, int(words[OfWire.SENT]) - int(words[OfWire.TAKEN]))
                both[1] += wire.capacity
        figures = {f"queue/{stream}": waiting / room for stream, (waiting, room) in held.items()}
        if any(wire.scheme in SOCKET_SCHEMES for wire in self.blueprint.wires):
            figures["refused/connections"] = float(account.sides[:, OfSide.STRANGERS].sum())
            figures["refused/messages"] = float(account.sides[:, OfSide.REFUSED].sum())
        if self._learned < self.warm_up or len(self._looks) < 2:
            return figures
        parts = self._busy_parts(account)
        by_stage: dict[str, list[float]] = {}
        for side, part in zip(self._working, parts, strict=True):
            by_stage.setdefault(side.stage, []).append(part)
        figures |= {f"busy/{stage}": sum(values) / len(values) for stage, values in by_stage.items()}
        workers = self.blueprint.workers
        on_cpu = (p for s, p in zip(self._working, parts, strict=True) if workers[s.worker].device == "cpu")
        figures["load"] = sum(on_cpu) / max(self.cores, 1)
        return figures

    def streams(self) -> Streams:
        """What passed between workers, once programs were compiled; empty before anything could be measured."""
        if self._steady is None or not self._looks or self._looks[-1].at <= self._steady.at:
            return {}
        return self._between(self._steady, self._looks[-1])

    def _between(self, first: _Look, last: _Look) -> Streams:
        seconds = last.at - first.at
        streams: Streams = {}
        for wire in self.blueprint.wires:
            if wire.leg not in last.messages:
                continue
            count = last.messages[wire.leg] - first.messages[wire.leg]
            streams[wire.leg] = {
                "messages_per_second": round(max(0, count) / seconds, 2),
                "bytes_per_message": message_bytes(self.specs[wire.name]),
            }
            if wire.lane >= 0:
                streams[wire.leg]["environments"] = self.blueprint.lanes[wire.lane].rows
        return streams

    def of_late(self) -> Streams:
        """``streams`` over the last few looks only; empty before there are two."""
        if len(self._looks) < 2 or self._looks[-1].at <= self._looks[0].at:
            return {}
        return self._between(self._looks[0], self._looks[-1])

    def busy_sides(self, account: Account) -> dict[int, float]:
        """The part of its time that each side works of late, by its index; empty during the warm-up."""
        if self._learned < self.warm_up or len(self._looks) < 2:
            return {}
        return dict(zip((side.index for side in self._working), self._busy_parts(account), strict=True))

    def _read(self, account: Account) -> _Look:
        words: Any = account.sides
        busy, waited = words[:, OfSide.BUSY_NS].tolist(), words[:, OfSide.WAIT_NS].tolist()
        return _Look(self._clock(), busy, waited, self._messages(account))

    def _messages(self, account: Account) -> dict[str, int]:
        """Messages on each stream that leaves a worker, as the account counts them."""
        home = [side.worker for side in self.blueprint.sides]
        found: dict[str, int] = {}
        for wire in self.blueprint.wires:
            if any(home[reader] != home[wire.writer] for reader in wire.readers):
                found[wire.leg] = found.get(wire.leg, 0) + int(account.wires[wire.index][OfWire.SENT])
        return found

    def _by_stage(self, look: _Look) -> dict[str, float]:
        busy: dict[str, list[float]] = {}
        for side in self._working:
            busy.setdefault(side.stage, []).append(look.busy[side.index] * 1e-9)
        return {stage: sum(seconds) / len(seconds) for stage, seconds in busy.items()}

    def _busy_parts(self, account: Account) -> list[float]:
        """Of each side that training needs, the part of the window in which it worked."""
        first, last = self._looks[0], self._looks[-1]
        parts = []
        for side in self._working:
            busy = last.busy[side.index] - first.busy[side.index]
            waited = last.waited[side.index] - first.waited[side.index]
            if busy + waited > 0:
                parts.append(busy / (busy + waited))
            else:  # one long call has taken the whole window: it is counted when it ends
                parts.append(0.0 if account.sides[side.index][OfSide.WAITING] else 1.0)
        return parts


def message_bytes(spec: ChannelSpec) -> int:
    """The bytes of one message's arrays, without what a slot adds to them."""
    return sum(prod(array.shape) * dtype_of(array).itemsize for array in spec.arrays)
