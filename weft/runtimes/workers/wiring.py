"""From a task to a worker's sides: channels opened, environments named, the algorithm bound. JAX only where needed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.core.recipe import from_recipe, import_script
from weft.envs.protocol import EnvSource
from weft.runtimes.workers.control.link import Link, LinkMessage
from weft.runtimes.workers.counting.account import Account
from weft.runtimes.workers.layout.blueprint import Blueprint, Side
from weft.runtimes.workers.side import SideContext
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Reader, Writer
from weft.streams.registry import create, open_reader, open_writer


class Running(Protocol):
    """A side at work."""

    @property
    def post(self) -> SideContext:
        """Its place in the run."""
        ...

    def run(self) -> None:
        """For ever; ends by an exception."""
        ...


@dataclass
class Task:
    """What a worker was told."""

    link: Link
    body: dict[str, Any]
    arrays: list[Any]
    blueprint: Blueprint
    account: Account
    bells: dict[int, Bell]
    specs: dict[str, ChannelSpec]
    life: int
    opened: list[Writer | Reader] = field(default_factory=list)
    _source: EnvSource | None = None

    @property
    def seed(self) -> int:
        """The run's seed; another for later lives of a worker and of the run: the same episodes are not played again.

        In lockstep it is the run's own, always: there everything goes on from where it stood.
        """
        from weft.core.keys import host_seed

        seed, resumed = int(self.body["seed"]), 0 if self.blueprint.lockstep else int(self.body["version"])
        if resumed:
            seed = host_seed(seed, 2**32 + resumed)
        return host_seed(seed, 2**31 + self.life) if self.life else seed

    @property
    def source(self) -> EnvSource:
        """The environment."""
        if self._source is None:
            recipe = self.body["source"]
            if "open" in recipe:
                from weft.envs.registry import open_environment

                options = from_recipe(recipe["options"])
                self._source = open_environment(recipe["open"], vector=recipe["vector"], **options)
            else:
                self._source = from_recipe(recipe)
        return self._source

    def post(self, side: Side) -> SideContext:
        """A side's place in the run."""
        return SideContext(side.index, side.name, self.bells[side.index], self.account, self.link, self.life)

    def writer(self, name: str) -> Writer:
        """The sending end of a wire."""
        wire = self.blueprint.wire(name)
        readers = [self.bells[r] for r in wire.readers]
        end = open_writer(self.specs[name], self.bells[wire.writer], readers)
        self.opened.append(end)
        return end

    def reader(self, name: str, side: Side) -> Reader:
        """The receiving end of a wire, for a side.

        Who sends a timestep or an action waits for the answer and not for the slot: it is not rung for that.
        """
        wire = self.blueprint.wire(name)
        writer = None if wire.stream in ("timestep", "action") else self.bells[wire.writer]
        end = open_reader(self.specs[name], self.bells[side.index], writer)
        self.opened.append(end)
        return end


@dataclass
class Wired:
    """A worker's sides, ready to run."""

    task: Task
    sides: list[Any]
    starts: list[Any]
    ready: dict[str, Any] = field(default_factory=dict)
    created: list[Any] = field(default_factory=list)

    def start(self) -> None:
        """Make the environments, load or make the params."""
        for start in self.starts:
            start()

    def close(self) -> None:
        """Close what the sides hold."""
        for side in self.sides:
            if hasattr(side, "close"):
                side.close()


def wire(link: Link, said: LinkMessage) -> Wired:
    """Build a worker's sides from what the launcher said."""
    body = said.body
    sys.path[:] = [*body["sys_path"], *(p for p in sys.path if p not in body["sys_path"])]
    if body["script"]:
        import_script(body["script"])
    blueprint: Blueprint = from_recipe(body["blueprint"])
    fd, *sizes = body["account"]
    bells = {int(index): Bell.from_fd(*fds) for index, fds in body["bells"].items()}
    specs = {name: ChannelSpec.from_json(saved) for name, saved in body["channels"].items()}
    account = Account(sizes[0], sizes[1], sizes[2], fd=fd)
    task = Task(link, body, said.arrays, blueprint, account, bells, specs, int(body["life"]))
    made = []
    for name, spec in specs.items():
        if spec.scheme == "inproc":  # both ends are here
            channel = create(spec)
            made.append(channel)
            specs[name] = channel.spec
    worker = blueprint.workers[body["worker"]]
    mine = [blueprint.sides[index] for index in worker.sides]
    if mine[0].kind == "env":
        wired = _wire_env(task, mine[0])
    else:
        from weft.runtimes.workers.wiring_jax import wire_jax

        wired = wire_jax(task, mine)
    wired.created = made
    wired.ready["pid"] = os.getpid()
    return wired


def _wire_env(task: Task, side: Side) -> Wired:
    from weft.runtimes.roles.step import EnvSide, Slice

    lanes = [task.blueprint.lanes[i] for i in side.lanes]
    slices = [
        Slice(
            lane.index,
            lane.first,
            lane.rows,
            task.writer(f"timestep/{lane.index}"),
            task.reader(f"action/{lane.index}", side),
        )
        for lane in lanes
    ]
    source = task.source
    make = source.host
    if make is None:
        from weft.envs.jax_on_host import JaxOnHostFactory
        from weft.runtimes.prepare.jax_setup import set_up

        set_up(cache=False)
        assert source.pure is not None
        make = JaxOnHostFactory(source.pure)
    env = EnvSide(task.post(side), make, task.seed, slices)
    wired = Wired(task, [env], [])
    snapshots = task.body.get("snapshots")
    wired.starts.append(lambda: wired.ready.update(lost=env.start(snapshots)))
    return wired
