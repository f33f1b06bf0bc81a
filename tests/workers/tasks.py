"""What a worker is told, without a worker: a plan's blueprint, channels in memory, the account, and tasks of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.core.specs import EnvSpec, Spec
from weft.envs.protocol import EnvSource
from weft.graph.algorithm import Algorithm
from weft.plans import Machine, parse
from weft.runtimes.synchrony import synchrony
from weft.runtimes.workers.control.link import Link
from weft.runtimes.workers.counting.account import Account, OfRun
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.runtimes.workers.layout.draft import draft
from weft.runtimes.workers.layout.schemas import Schemas
from weft.runtimes.workers.wiring import Task
from weft.streams.bell import Bell
from weft.streams.channel import Created, Reader, Writer
from weft.streams.registry import create, open_reader, open_writer

NO_LIMIT = 10**9


class Office:
    """Everything that the workers of a plan share, in this process; ``task`` is what one of them is told.

    Shapes are found when it is made; ``open`` and ``close`` make and give back the rest, as often as one likes.
    """

    def __init__(
        self,
        expression: str,
        algorithm: Algorithm,
        spec: EnvSpec,
        *,
        envs: int,
        lockstep: bool = False,
        max_lag: int = 1,
        ring: int = 1,
        learners: int = 1,
    ) -> None:
        self.algorithm = algorithm.bind(Spec(spec, envs // learners, 10, replicas=learners))
        self.source = EnvSource(spec.name, spec, host=_no_environments)
        plan = parse(expression)
        for index, group in enumerate(plan.groups):
            plan = plan.with_group(index, replicas=group.replicas or 1)
        self.blueprint: Blueprint = draft(
            plan,
            self.algorithm.graph(),
            envs,
            Machine(cores=2),
            synchrony(lockstep, max_lag),
            ring=ring,
            channel="shm",
        )
        self.schemas = Schemas(self.blueprint, self.algorithm, pure_env=False)
        self._specs = {n: replace(s, scheme="inproc") for n, s in self.schemas.channels().items()}

    def open(self) -> None:
        """Everything anew; to be closed."""
        self.account = Account(len(self.blueprint.sides), len(self.blueprint.wires))
        self.account.run[OfRun.LIMIT] = NO_LIMIT
        self.bells = {side.index: Bell() for side in self.blueprint.sides}
        self.link = Link.pair()
        self.created: dict[str, Created] = {name: create(spec) for name, spec in self._specs.items()}

    def task(self, worker: int, kind: type[Task] = Task, life: int = 0, account: Account | None = None) -> Task:
        """A worker's task; its sides are built from it."""
        body: dict[str, Any] = {"worker": worker, "seed": 0, "version": 0, "states": [], "lanes": [], "lost": {}}
        specs = {name: created.spec for name, created in self.created.items()}
        account = account or self.account
        task = kind(self.link[0], body, [], self.blueprint, account, self.bells, specs, life)
        # As if they had been opened by their recipes.
        task.__dict__ |= {"source": self.source, "algorithm": self.algorithm, "schemas": self.schemas}
        return task

    def writer(self, name: str) -> Writer:
        """The writing end of a wire, for what is not there."""
        wire = self.blueprint.wire(name)
        return open_writer(self.created[name].spec, self.bells[wire.writer], [self.bells[r] for r in wire.readers])

    def reader(self, name: str) -> Reader:
        """The reading end of a wire, for what is not there."""
        wire = self.blueprint.wire(name)
        return open_reader(self.created[name].spec, self.bells[wire.readers[0]], self.bells[wire.writer])

    def close(self) -> None:
        """Give everything back."""
        for created in self.created.values():
            created.close()
        for end in (*self.link, *self.bells.values(), self.account):
            end.close()


def _no_environments(rows: int, seed: int, first: int) -> Any:
    raise AssertionError("these tests make no environments")
