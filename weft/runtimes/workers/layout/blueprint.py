"""What a plan comes to in processes: workers and their sides, lanes of environments, and the wires between them. Pure.

    worker   a process, one for each replica of a group
    side     a thread of a worker with one job: env, actor (env and act together), act, learn, grad or apply
    lane     environments that go through act together: a slice of an env worker's ring, or all of an actor's
    wire     a stream between two sides; it becomes a channel

Lanes are numbered in the order of their environments, and each belongs to one learner: so in lockstep a batch has the
same environments in the same order under every plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.delivery import Delivery

if TYPE_CHECKING:  # an env worker reads a blueprint, and need not load the plan language
    from weft.plans import Group, Machine, Plan

STAGES = {"env": "env", "actor": "env+act", "act": "act", "learn": "learn", "grad": "grad", "apply": "apply"}
"""The stage that a side's time is counted under."""


@dataclass(frozen=True)
class Lane:
    """Environments ``first`` to ``first + rows - 1`` of the run, whose unrolls go to ``learner``."""

    index: int
    first: int
    rows: int
    learner: int


@dataclass(frozen=True)
class Side:
    """A job in a worker. ``rank`` counts the sides of its kind; ``lanes`` are those it steps, acts for or learns."""

    index: int
    kind: str
    rank: int
    worker: int
    lanes: tuple[int, ...]

    @property
    def name(self) -> str:
        """``act-1``."""
        return f"{self.kind}-{self.rank}"


@dataclass(frozen=True)
class Worker:
    """A process. ``device`` is ``cpu`` or ``gpu:N``; ``loads_jax`` False means that it never does."""

    index: int
    name: str
    sides: tuple[int, ...]
    device: str
    loads_jax: bool


@dataclass(frozen=True)
class Wire:
    """A stream's way from one side to others; ``lane`` is -1 where it belongs to none."""

    name: str
    stream: str
    writer: int
    readers: tuple[int, ...]
    lane: int
    scheme: str
    capacity: int
    delivery: Delivery


@dataclass(frozen=True)
class Blueprint:
    """Everything that runs, and how it is joined."""

    workers: tuple[Worker, ...]
    sides: tuple[Side, ...]
    lanes: tuple[Lane, ...]
    wires: tuple[Wire, ...]
    learners: int
    lockstep: bool
    max_lag: int
    central: bool  # gradients go to one apply

    def kind(self, kind: str) -> list[Side]:
        """The sides of one kind, by rank."""
        return [side for side in self.sides if side.kind == kind]

    def wire(self, name: str) -> Wire:
        """The wire called ``name``."""
        return next(wire for wire in self.wires if wire.name == name)

    @property
    def counting(self) -> int:
        """How many count what becomes of samples: the learners, or the grad sides and, last, apply."""
        return self.learners + self.central

    @property
    def pieces(self) -> int:
        """Unrolls that one learner needs for a batch."""
        return len(self.lanes) // self.learners


@dataclass(frozen=True)
class Manner:
    """How a run's processes work together; the run's settings decide it (``prepare.settings``)."""

    lockstep: bool
    max_lag: int  # versions that a sample's params may be behind when it is trained on
    ring: int  # slices of an env worker's environments
    channel: str


def draft(plan: Plan, envs: int, machine: Machine, manner: Manner, *, pure_env: bool = False) -> Blueprint:
    """The blueprint of a resolved plan for ``envs`` environments. Raises PlanError where lanes cannot be shared out."""
    from weft.plans.executable import shared_out

    shared_out(plan, envs)
    return _Drafting(plan, envs, machine, manner, pure_env).finish()


class _Drafting:
    def __init__(self, plan: Plan, envs: int, machine: Machine, manner: Manner, pure_env: bool) -> None:
        self.plan, self.envs, self.machine, self.manner, self.pure_env = plan, envs, machine, manner, pure_env
        self.workers: list[Worker] = []
        self.sides: list[Side] = []
        self.wires: list[Wire] = []
        self.central = "apply" in plan.fragments
        self.learn = "grad" if self.central else "learn"
        self.learners = plan.group_of(self.learn).replicas or 1
        self.lanes = self._lanes()

    def finish(self) -> Blueprint:
        for group in self.plan.groups:
            for replica in range(group.replicas or 1):
                self._worker(group, replica)
        self._wire()
        return Blueprint(
            tuple(self.workers),
            tuple(self.sides),
            self.lanes,
            tuple(self.wires),
            self.learners,
            self.manner.lockstep,
            self._max_lag(),
            self.central,
        )

    def _max_lag(self) -> int:
        """In versions of this plan: where gradients are applied singly, each of a batch's is a version."""
        lag, single = self.manner.max_lag, self.central and not self.manner.lockstep
        return (lag + 1) * self.learners - 1 if single else lag

    def _lanes(self) -> tuple[Lane, ...]:
        group = self.plan.group_of("env")
        workers = group.replicas or 1
        share = self.envs // workers
        slices = 1 if "act" in group.fragments else self._slices(workers, share)
        rows, count = share // slices, workers * slices
        return tuple(Lane(i, i * rows, rows, i * self.learners // count) for i in range(count))

    def _slices(self, workers: int, share: int) -> int:
        """The ring's size that divides a worker's environments, and all of them among the learners, nearest to asked.

        In one worker with one environment there is nothing to cut.
        """
        acts = self.plan.group_of("act").replicas or 1
        fits = [n for n in range(1, share + 1) if share % n == 0 and (workers * n) % self.learners == 0]
        fits = [n for n in fits if workers * n >= acts]  # each act has a slice at least
        return min(fits, key=lambda n: (abs(n - self.manner.ring), n))

    def _worker(self, group: Group, replica: int) -> None:
        index = len(self.workers)
        sides: list[int] = []
        for kind in self._kinds(group):
            side = Side(len(self.sides), kind, replica, index, self._share(kind, group, replica))
            self.sides.append(side)
            sides.append(side.index)
        only_env = group.fragments == ("env",)
        loads_jax = not only_env or self.pure_env
        name = "+".join(group.fragments) + f"-{replica}"
        self.workers.append(Worker(index, name, tuple(sides), self._device(group, replica, only_env), loads_jax))

    def _kinds(self, group: Group) -> list[str]:
        names = set(group.fragments)
        kinds = []
        if {"env", "act"} <= names:
            kinds.append("actor")
        elif "env" in names:
            kinds.append("env")
        elif "act" in names:
            kinds.append("act")
        kinds += [part for part in ("learn", "grad", "apply") if part in names]
        return kinds

    def _share(self, kind: str, group: Group, replica: int) -> tuple[int, ...]:
        """The lanes of a side: a contiguous share of all."""
        if kind == "apply":
            return ()
        count, replicas = len(self.lanes), group.replicas or 1
        if kind in ("learn", "grad"):
            return tuple(lane.index for lane in self.lanes if lane.learner == replica)
        return tuple(i for i in range(count) if i * replicas // count == replica)

    def _device(self, group: Group, replica: int, only_env: bool) -> str:
        """Where a worker's JAX runs. Unless told: accelerators, but not for more actors than there are of them."""
        gpus = self.machine.gpus
        if only_env or not gpus or (group.device is not None and group.device.kind == "cpu"):
            return "cpu"
        if group.device is None and "env" in group.fragments and (group.replicas or 1) > gpus:
            return "cpu"
        numbers = list(group.device.indices or range(gpus)) if group.device else list(range(gpus))
        return f"gpu:{numbers[replica % len(numbers)]}"

    def _wire(self) -> None:
        acting = {lane: s for s in self.sides if s.kind in ("act", "actor") for lane in s.lanes}
        stepping = {lane: s for s in self.sides if s.kind == "env" for lane in s.lanes}
        learning = {lane: s for s in self.sides if s.kind in ("learn", "grad") for lane in s.lanes}
        ahead = 1 if self.manner.lockstep else self.manner.max_lag + 1
        for lane in self.lanes:
            act, learn = acting[lane.index], learning[lane.index]
            if lane.index in stepping:
                env = stepping[lane.index]
                self._join("timestep", env, [act], lane.index, 1)
                self._join("action", act, [env], lane.index, 1)
            self._join("unroll", act, [learn], lane.index, ahead)
        actors = [side for side in self.sides if side.kind in ("act", "actor")]
        if self.central:
            apply = next(side for side in self.sides if side.kind == "apply")
            grads = [side for side in self.sides if side.kind == "grad"]
            for side in grads:
                self._join("gradients", side, [apply], -1, 1, label=str(side.rank))
            self._join("params", apply, [*actors, *grads], -1, 1, Delivery.LATEST)
        else:
            first = next(side for side in self.sides if side.kind == "learn")
            self._join("params", first, actors, -1, 1, Delivery.LATEST)

    def _join(
        self,
        stream: str,
        writer: Side,
        readers: Sequence[Side],
        lane: int,
        capacity: int,
        delivery: Delivery = Delivery.BLOCK,
        label: str | None = None,
    ) -> None:
        together = all(reader.worker == writer.worker for reader in readers)
        scheme = "inproc" if together else self.manner.channel
        if together and stream == "unroll":  # what was sent outlives the worker: its next life trains on it
            scheme = "shm"
        name = stream if lane < 0 and label is None else f"{stream}/{lane if label is None else label}"
        wire = Wire(name, stream, writer.index, tuple(r.index for r in readers), lane, scheme, capacity, delivery)
        self.wires.append(wire)
