"""What a plan comes to in processes, as data: workers and their sides, lanes of environments, wires between them.

    host     a machine; one launcher starts and replaces its workers
    worker   a process, one for each replica of a group
    side     a thread of a worker that runs one fragment, or several that become one loop or one program
    lane     environments that go through inference together
    wire     a stream between two sides; it becomes a channel

``draft`` makes it from a graph and a plan. Loads no JAX: environment workers read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar, overload

from weft.core.delivery import Delivery
from weft.graph.role import role
from weft.runtimes.synchrony import Synchrony


@dataclass(frozen=True)
class Host:
    """A machine of the run: what it is called, and what of it the run may use."""

    index: int
    name: str
    cores: int = 1
    gpus: int = 0
    labels: tuple[str, ...] = ()  # what a plan may ask for with ``@node:LABEL``
    slots: int = 0  # workers that it may have; 0: one for each core

    @property
    def room(self) -> int:
        """Workers that it may have."""
        return self.slots or self.cores


@dataclass(frozen=True)
class Lane:
    """Environments ``first`` to ``first + rows - 1`` of the run."""

    index: int
    first: int
    rows: int


@dataclass(frozen=True)
class Side:
    """A job in a worker: ``fragments`` that run as one; ``role`` is the role that runs them.

    ``rank`` is the replica of its group, of ``replicas``; ``lanes`` are those whose messages it handles.
    """

    index: int
    role: str
    fragments: tuple[str, ...]
    rank: int
    replicas: int
    worker: int
    lanes: tuple[int, ...]
    together: bool = False  # its replicas are one program over their devices
    shards: tuple[str, ...] = ()  # of its fragments, the stores of which each replica has a part of its own

    @property
    def name(self) -> str:
        """``env+act-1``: also the stage that its time is counted under, and its rank."""
        return f"{self.stage}-{self.rank}"

    @property
    def stage(self) -> str:
        """``env+act``."""
        return "+".join(self.fragments)

    def state_name(self, fragment: str) -> str:
        """What the state of one of its fragments is called: of a shard by its number too."""
        return f"{fragment}-{self.rank}" if fragment in self.shards else fragment


@dataclass(frozen=True)
class Worker:
    """A process. ``device`` is ``cpu`` or ``gpu:N``; ``loads_jax`` False means that it never does."""

    index: int
    name: str
    sides: tuple[int, ...]
    device: str
    loads_jax: bool
    host: int = 0
    node: str = ""  # the label that its host must have; empty: any


@dataclass(frozen=True)
class Wire:
    """A stream's way from one side to others; ``lane`` is -1 where it belongs to none."""

    index: int
    name: str
    stream: str
    source: str  # the fragment that writes
    writer: int
    readers: tuple[int, ...]
    lane: int
    scheme: str
    capacity: int
    delivery: Delivery
    every_step: bool = False  # its writer waits for an answer, not for the slot
    samples: int = 0  # environment steps in a message; 0: the ledger does not count it
    max_lag: int = 0  # versions that a message may be behind on arrival
    in_round: int = 1  # messages in one round of lockstep
    drawn: bool = False  # what a store draws: no sample of its own, those were counted when the store took them
    feedback: bool = False  # what is told of that, back to the store
    batches: int = 1  # that a store draws at a time: a message of the two above has so many, one after the other
    slab: int = -1  # of timesteps: the wire into whose slots they are written, where its writer says; -1: none

    @property
    def leg(self) -> str:
        """What it is called with all others of the same stream and writer: ``unroll``, ``unroll.relabel``."""
        return self.name.partition("/")[0]


T = TypeVar("T")


@dataclass(frozen=True)
class Some(Sequence[T], Generic[T]):
    """Some of ``total`` things, each under its own number; the others cannot be asked for.

    Its length is the total; it iterates over what it has.
    """

    total: int
    numbers: tuple[int, ...]  # ascending
    things: tuple[T, ...]

    @classmethod
    def of(cls, everything: Sequence[T], numbers: set[int]) -> Some[T]:
        """Those with ``numbers``."""
        chosen = tuple(sorted(numbers))
        return cls(len(everything), chosen, tuple(everything[number] for number in chosen))

    @cached_property
    def _by_number(self) -> dict[int, T]:
        return dict(zip(self.numbers, self.things, strict=True))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice) or index not in self._by_number:
            raise IndexError(f"number {index} is not in this worker's part of the blueprint, which has {self.numbers}")
        return self._by_number[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.things)

    def __len__(self) -> int:
        return self.total


@dataclass(frozen=True)
class Blueprint:
    """Everything that runs, and how it is joined; in a worker, the part of it that concerns the worker."""

    hosts: tuple[Host, ...]
    workers: Sequence[Worker]
    sides: Sequence[Side]
    lanes: Sequence[Lane]
    wires: Sequence[Wire]
    synchrony: Synchrony
    publishers: tuple[str, ...]  # the fragments whose state is the run's
    stateful: tuple[int, ...] = ()  # sides whose fragments have states of their own: not those at every step
    transit: tuple[int, ...] = ()  # sides that hand samples on: from counted wires to counted wires
    watching: tuple[int, ...] = ()  # sides that only look on: nothing depends on them, and nothing of theirs is saved

    def host_of(self, side: int) -> int:
        """The host that a side is on."""
        return self.workers[self.sides[side].worker].host

    def hosts_of(self, wire: Wire) -> set[int]:
        """The hosts that a wire's ends are on."""
        return {self.host_of(side) for side in (wire.writer, *wire.readers)}

    def sides_of(self, fragment: str) -> list[Side]:
        """The sides that run a fragment, by rank."""
        return [side for side in self.sides if fragment in side.fragments]

    def wire(self, name: str) -> Wire:
        """The wire called ``name``."""
        return self._by_name[name]

    def into(self, side: int) -> list[Wire]:
        """The wires that a side reads."""
        return list(self._into.get(side, ()))

    def out_of(self, side: int) -> list[Wire]:
        """The wires that a side writes."""
        return list(self._out_of.get(side, ()))

    # A run of tens of thousands of wires looks them up as often: found once.

    @cached_property
    def _by_name(self) -> dict[str, Wire]:
        return {wire.name: wire for wire in self.wires}

    @cached_property
    def _into(self) -> dict[int, list[Wire]]:
        found: dict[int, list[Wire]] = {}
        for wire in self.wires:
            for reader in wire.readers:
                found.setdefault(reader, []).append(wire)
        return found

    @cached_property
    def _out_of(self) -> dict[int, list[Wire]]:
        found: dict[int, list[Wire]] = {}
        for wire in self.wires:
            found.setdefault(wire.writer, []).append(wire)
        return found

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        """A side of each stage: together they name all fragments that run."""
        found: dict[str, int] = {}
        for side in self.sides:
            found.setdefault(side.stage, side.index)
        return tuple(found.values())

    @cached_property
    def _joined(self) -> dict[str, set[int]]:
        """The workers of the replicas that are one program, by stage."""
        found: dict[str, set[int]] = {}
        for side in self.sides:
            if side.together:
                found.setdefault(side.stage, set()).add(side.worker)
        return found

    def for_worker(self, worker: int) -> Blueprint:
        """What a worker has to know: its own sides, lanes and wires, what is at the other ends of those, its replicas.

        As large as the worker's own share, however many others there are. Numbers stay what they are. Of sides of
        others it does not say the lanes; of a wire that others read too, only this worker's readers, unless it is the
        writer.
        """
        own = set(self.workers[worker].sides)
        wires = {w.index: w for side in own for w in (*self.into(side), *self.out_of(side))}
        for wire in list(wires.values()):
            if wire.writer not in own:
                wires[wire.index] = replace(wire, readers=tuple(r for r in wire.readers if r in own))
            elif wire.slab >= 0:
                wires.setdefault(wire.slab, self.wires[wire.slab])
        one_program = any(self.sides[side].together for side in own)
        workers = {worker} | (self.together(worker) if one_program else set())  # it asks on which hosts those are
        near = {s for w in wires.values() for s in (w.writer, *w.readers)}
        sides = near | {s for w in workers for s in self.workers[w].sides} | set(self._firsts)
        lanes = {lane for side in own for lane in self.sides[side].lanes} | {w.lane for w in wires.values()}
        kept = Some.of(self.sides, sides)
        shown = tuple(side if side.index in own else replace(side, lanes=()) for side in kept)
        chosen = tuple(sorted(wires))
        return replace(
            self,
            workers=Some.of(self.workers, workers),
            sides=replace(kept, things=shown),
            lanes=Some.of(self.lanes, {0, *lanes} - {-1}),
            wires=Some(len(self.wires), chosen, tuple(wires[index] for index in chosen)),
            stateful=tuple(s for s in self.stateful if s in sides),
            transit=tuple(s for s in self.transit if s in sides),
            watching=tuple(s for s in self.watching if s in sides),
        )

    def listeners(self) -> list[list[str]]:
        """The names of all wires, those together that one worker reads and that look alike: they share a listener."""
        found: dict[tuple[int, str, str], list[str]] = {}
        for wire in self.wires:
            alone = wire.delivery is Delivery.LATEST or not wire.readers
            worker = -1 - wire.index if alone else self.sides[wire.readers[0]].worker
            found.setdefault((worker, wire.leg, wire.scheme), []).append(wire.name)
        return list(found.values())

    @property
    def publishing(self) -> list[Side]:
        """The sides that hold the run's state, all replicas of them."""
        return [side for side in self.sides if set(side.fragments) & set(self.publishers)]

    @cached_property
    def gradient_workers(self) -> frozenset[int]:
        """The workers that compute gradients: they share the cores."""
        return frozenset(side.worker for side in self.sides if role(side.role).computes_gradients)

    def publishing_workers(self) -> tuple[int, ...]:
        """The workers of those."""
        return tuple(sorted({side.worker for side in self.publishing}))

    def watching_workers(self) -> set[int]:
        """The workers all of whose sides only look on: the run goes on while one of them is away."""
        return {worker.index for worker in self.workers if set(worker.sides) <= set(self.watching)}

    def together(self, worker: int) -> set[int]:
        """The workers that are one program with this one, itself too; empty where none are."""
        mine = (self.sides[side] for side in self.workers[worker].sides)
        return {other for side in mine if side.together for other in self._joined[side.stage]}

    def saving(self) -> set[int]:
        """The sides that are asked for their part of a checkpoint: where nothing moves between two updates, all.

        Otherwise those that hold states; environments and what acts in them begin anew after a resume.
        """
        if self.synchrony.still:
            return {side.index for side in self.sides} - set(self.watching)
        return {side.index for side in self.sides if side.index in self.stateful}
