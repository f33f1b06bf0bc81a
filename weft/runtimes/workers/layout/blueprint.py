"""What a plan comes to in processes, as data: workers and their sides, lanes of environments, wires between them.

    host     a machine; one launcher starts and replaces its workers
    worker   a process, one for each replica of a group
    side     a thread of a worker that runs one fragment, or several that become one loop or one program
    lane     environments that go through inference together
    wire     a stream between two sides; it becomes a channel

``draft`` makes it from a graph and a plan. Loads no JAX: environment workers read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.delivery import Delivery
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
    shard: bool = False  # its replicas have different states, as those of a store do

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
        return f"{fragment}-{self.rank}" if self.shard else fragment


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


@dataclass(frozen=True)
class Blueprint:
    """Everything that runs, and how it is joined."""

    hosts: tuple[Host, ...]
    workers: tuple[Worker, ...]
    sides: tuple[Side, ...]
    lanes: tuple[Lane, ...]
    wires: tuple[Wire, ...]
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
        return next(wire for wire in self.wires if wire.name == name)

    def into(self, side: int) -> list[Wire]:
        """The wires that a side reads."""
        return [wire for wire in self.wires if side in wire.readers]

    def out_of(self, side: int) -> list[Wire]:
        """The wires that a side writes."""
        return [wire for wire in self.wires if wire.writer == side]

    @property
    def publishing(self) -> list[Side]:
        """The sides that hold the run's state, all replicas of them."""
        return [side for side in self.sides if set(side.fragments) & set(self.publishers)]

    def publishing_workers(self) -> tuple[int, ...]:
        """The workers of those."""
        return tuple(sorted({side.worker for side in self.publishing}))

    def watching_workers(self) -> set[int]:
        """The workers all of whose sides only look on: the run goes on while one of them is away."""
        return {worker.index for worker in self.workers if set(worker.sides) <= set(self.watching)}

    def together(self, worker: int) -> set[int]:
        """The workers that are one program with this one, itself too; empty where none are."""
        names = {side.stage for side in self.sides if side.worker == worker and side.together}
        return {side.worker for side in self.sides if side.together and side.stage in names}

    def saving(self) -> set[int]:
        """The sides that are asked for their part of a checkpoint: where nothing moves between two updates, all.

        Otherwise those that hold states; environments and what acts in them begin anew after a resume.
        """
        if self.synchrony.still:
            return {side.index for side in self.sides} - set(self.watching)
        return {side.index for side in self.sides if side.index in self.stateful}
