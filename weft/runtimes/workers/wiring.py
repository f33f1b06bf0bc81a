"""From a task to a worker's sides: channels opened, environments named, the algorithm bound. JAX only where needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.core.delivery import Delivery
from weft.core.recipe import from_recipe, import_script
from weft.envs.dials import Dials, dialled
from weft.envs.guards import Guards, guarded
from weft.envs.protocol import EnvSource
from weft.graph.role import role
from weft.runtimes.workers.control.link import Link, LinkMessage
from weft.runtimes.workers.counting.account import Account
from weft.runtimes.workers.layout.blueprint import Blueprint, Lane, Side, Wire
from weft.runtimes.workers.pulse import Pulse
from weft.runtimes.workers.side import Running, SideContext
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Reader, Writer
from weft.streams.registry import create, open_reader, open_writer

if TYPE_CHECKING:  # what loads JAX
    from weft.graph.algorithm import Algorithm
    from weft.runtimes.compiled.rollout import Actor
    from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
    from weft.runtimes.stage import Leg
    from weft.runtimes.workers.layout.schemas import Schemas
    from weft.runtimes.workers.left import Left
    from weft.runtimes.workers.unroll_writer import UnrollWriter
    from weft.runtimes.workers.weights import Publisher, Weights


@dataclass
class Task:
    """What a worker was told, and what its sides open from it."""

    link: Link
    body: dict[str, Any]
    arrays: list[Any]
    blueprint: Blueprint
    account: Account
    bells: dict[int, Bell]
    specs: dict[str, ChannelSpec]
    life: int
    learner_devices: tuple[Any, ...] = ()  # of all replicas that are one program with this worker's
    pulse: Pulse | None = None
    _contexts: dict[int, SideContext] = field(default_factory=dict)
    _writers: dict[str, Writer] = field(default_factory=dict)  # by wire

    @property
    def seed(self) -> int:
        """What environments and noise are drawn from, in this life."""
        resumed = int(self.body["version"])
        return self.blueprint.synchrony.seed(int(self.body["seed"]), resumed, self.life)

    @property
    def inspect(self) -> Path | None:
        """The folder for batches that were refused."""
        folder = self.body.get("inspect")
        return None if folder is None else Path(folder)

    @cached_property
    def source(self) -> EnvSource:
        """The environment; with dials, where a curriculum sets options of it."""
        names = tuple(self.body.get("dials", ()))
        return dialled(self._plain_source(), Dials(names, self.account.dials) if names else None)

    def _plain_source(self) -> EnvSource:
        recipe = self.body["source"]
        if "open" not in recipe:
            source: EnvSource = from_recipe(recipe)
            return source
        from weft.envs.registry import open_environment

        options = from_recipe(recipe["options"])
        opened = open_environment(recipe["open"], vector=recipe["vector"], **options)
        return guarded(opened, Guards(*recipe["guards"]))

    @cached_property
    def algorithm(self) -> Algorithm:
        """The bound algorithm."""
        algorithm: Algorithm = from_recipe(self.body["algorithm"])
        return algorithm.with_spec(from_recipe(self.body["spec"]))

    @cached_property
    def schemas(self) -> Schemas:
        """The graph, and what passes along each wire."""
        from weft.runtimes.workers.layout.schemas import Schemas

        return Schemas(self.blueprint, self.algorithm, pure_env=self.source.pure is not None)

    # ---- what sides ask for -----------------------------------------------------------------------------------------

    @cached_property
    def left(self) -> Left:
        """What act leaves for learn on the device, where both are sides of this worker."""
        from weft.runtimes.workers.left import Left

        return Left()

    def context(self, side: Side) -> SideContext:
        """A side's place in the run."""
        if side.index not in self._contexts:
            bell = self.bells[side.index]
            self._contexts[side.index] = SideContext(side.index, side.name, bell, self.account, self.link, self.life)
        return self._contexts[side.index]

    def writer(self, wire: Wire) -> Writer:
        """The sending end of a wire."""
        readers = [self.bells[r] for r in wire.readers if r in self.bells]  # those that share memory with it
        readers += [Bell.from_fd(*fds) for name, fds in self.body.get("relays", {}).items() if name == wire.name]
        self._writers[wire.name] = open_writer(self.specs[wire.name], self.bells[wire.writer], readers)
        return self._writers[wire.name]

    def repoint(self, wire: str, place: str) -> None:
        """The reader of a wire over sockets is at ``place`` now: what it has not released goes there."""
        writer = self._writers.get(wire)
        if writer is not None and self.specs[wire].scheme == "tcp":
            writer.repoint(place)  # type: ignore[attr-defined]  # a TcpWriter's

    def reader(self, wire: Wire, side: Side) -> Reader:
        """The receiving end of a wire, for a side.

        The writer of a stream of every step waits for the answer and not for the slot: it is not rung for that.
        """
        writer = None if wire.every_step else self.bells.get(wire.writer)
        return open_reader(self.specs[wire.name], self.bells[side.index], writer)

    @property
    def blueprint_acts(self) -> list[str]:
        """All acts of the run, in order: episodes are counted for each."""
        from weft.runtimes.actors import act_names

        return act_names(self.schemas.graph)

    def actors(self, side: Side) -> list[Actor]:
        """The acts of a side."""
        from weft.runtimes.actors import actors_of

        return [actor for actor in actors_of(self.schemas.graph) if actor.name in side.fragments]

    def params_leg(self, name: str) -> Leg:
        """The leg on which a fragment's params come."""
        latest = [s for s in self.schemas.graph.into(name) if s.delivery is Delivery.LATEST]
        return latest[0].source, latest[0].name

    def params_wire(self, side: Side, name: str) -> Wire:
        """The wire on which a fragment's params come."""
        source, stream = self.params_leg(name)
        return next(w for w in self.blueprint.into(side.index) if (w.source, w.stream) == (source, stream))

    def weights(self, side: Side, name: str) -> Weights:
        """The newest params of a fragment of a side."""
        return self.weights_of(side, *self.params_leg(name))

    def weights_of(self, side: Side, source: str, stream: str) -> Weights:
        """The newest params that a side reads from ``source``."""
        import jax

        from weft.runtimes.workers.weights import Weights

        wire = next(w for w in self.blueprint.into(side.index) if (w.source, w.stream) == (source, stream))
        structure = jax.tree.structure(self.schemas.form(wire).schema)
        return Weights(wire, self.reader(wire, side), structure, self.account)

    def publisher(self, side: Side, name: str) -> Publisher:
        """Where a fragment's params leave."""
        from weft.runtimes.workers.weights import Publisher

        wire = next(w for w in self.blueprint.out_of(side.index) if w.source == name and w.delivery is Delivery.LATEST)
        return Publisher(wire, self.writer(wire), self.account)

    def unroll_writer(self, side: Side, act: str, lane: int) -> UnrollWriter:
        """Where an act's unrolls of a lane leave."""
        from weft.runtimes.workers.unroll_writer import UnrollWriter

        wire = next(
            w for w in self.blueprint.out_of(side.index) if w.source == act and w.lane == lane and not w.every_step
        )
        spec = self.schemas.graph.fragment(act).code.spec.environment
        schema = self.schemas.form(wire).schema
        place = self.blueprint.lanes[lane]
        return UnrollWriter(wire, place, self.writer(wire), schema, spec, self.account, self.life)

    def scratch(self, actor: Actor, rows: int) -> UnrollBuffer:
        """A buffer for an act's first timestep, before there is a slot for it."""
        import jax

        from weft.graph.loops import acted_schema
        from weft.runtimes.hosted.blocks import allocate_block, block_schema
        from weft.runtimes.hosted.unroll_buffer import UnrollBuffer

        spec = actor.algorithm.spec.environment
        params = jax.eval_shape(actor.algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
        schema = block_schema(spec, 1, rows, acted_schema(actor.algorithm, params), extras=False)
        return UnrollBuffer(spec, allocate_block(schema), rows)

    def lane_leaves(self, lane: Lane) -> dict[str, list[Any]] | None:
        """Where a lane stood when the run was saved, by what stood there; None where it begins anew."""
        from weft.runtimes.workers.lane_checkpoint import cut_rows

        if not self.body.get("lanes"):
            return None
        at = sum(count for _, count in self.body["states"])
        found: dict[str, list[Any]] = {}
        for key, count in self.body["lanes"]:
            found[key] = cut_rows(self.arrays[at : at + count], lane.first, lane.rows)
            at += count
        return found

    def saved_states(self, names: Iterable[str]) -> dict[str, list[Any]] | None:
        """The saved states of fragments as lists of arrays; None where they begin anew."""
        at, found = 0, {}
        for name, count in self.body["states"]:
            found[name] = self.arrays[at : at + count]
            at += count
        return found if found and set(names) <= set(found) else None

    def side_rank(self, name: str) -> int:
        """The rank of this worker's side that runs a fragment."""
        mine = self.blueprint.workers[self.body["worker"]].sides
        return next(side.rank for side in self.blueprint.sides_of(name) if side.index in mine)


@dataclass
class Wired:
    """A worker's sides, ready to run."""

    task: Task
    sides: list[Running]
    ready: dict[str, Any] = field(default_factory=dict)
    created: list[Any] = field(default_factory=list)

    def start(self) -> None:
        """Make the environments, load or make the params."""
        for side in self.sides:
            for key, value in side.start().items():
                self.ready[key] = {**self.ready.get(key, {}), **value}

    def close(self) -> None:
        """Close what the sides hold."""
        for side in self.sides:
            side.close()


def wire(link: Link, message: LinkMessage) -> Wired:
    """Build a worker's sides from the launcher's message."""
    body = message.body
    sys.path[:] = [*body["sys_path"], *(p for p in sys.path if p not in body["sys_path"])]
    blueprint: Blueprint = from_recipe(body["blueprint"])
    fd, *sizes = body["account"]
    bells = {int(index): Bell.from_fd(*fds) for index, fds in body["bells"].items()}
    specs = {name: ChannelSpec.from_json(saved) for name, saved in body["channels"].items()}
    account = Account(sizes[0], sizes[1], fd=fd)
    task = Task(link, body, message.arrays, blueprint, account, bells, specs, int(body["life"]))
    worker = blueprint.workers[body["worker"]]
    task.pulse = Pulse(account, link, worker.sides, body["hang_seconds"])
    task.pulse.start()
    made = []
    for name, spec in specs.items():
        if spec.scheme == "inproc":  # both ends are here
            channel = create(spec)
            made.append(channel)
            specs[name] = channel.spec
    if worker.loads_jax:
        _set_up_jax(task, [blueprint.sides[index] for index in worker.sides])  # before a script that may use it
    if body["script"]:
        import_script(body["script"])
    if worker.loads_jax:
        assert task.algorithm  # a role of the user's is registered where its module is imported
    sides = [role(blueprint.sides[i].role).code().side(task, blueprint.sides[i]) for i in worker.sides]
    wired = Wired(task, sides, {}, made)
    wired.ready["pid"] = {str(worker.index): os.getpid()}
    return wired


def _set_up_jax(task: Task, sides: list[Side]) -> None:
    """JAX as every worker has it; and the devices of all replicas where they are one program."""
    import jax

    from weft.runtimes.prepare.jax_setup import set_up

    set_up(cache=False)
    coordinator = task.body.get("coordinator")
    joined = [side for side in sides if side.together]
    if not joined or coordinator is None:
        task.learner_devices = (jax.local_devices()[0],)
        return
    from weft.runtimes.workers.joining import join_replicas

    on_cpu = task.blueprint.workers[joined[0].worker].device == "cpu"
    places = {task.blueprint.host_of(s.index) for s in task.blueprint.sides if s.stage == joined[0].stage}
    interface = task.body.get("interface", "127.0.0.1") if len(places) > 1 else "127.0.0.1"
    rank, replicas = joined[0].rank, joined[0].replicas
    join_replicas(coordinator, replicas, rank, cpu=on_cpu, interface=interface, between_hosts=len(places) > 1)
    first: dict[int, Any] = {}
    for device in sorted(jax.devices(), key=lambda d: d.id):
        first.setdefault(device.process_index, device)
    task.learner_devices = tuple(first[index] for index in sorted(first))
