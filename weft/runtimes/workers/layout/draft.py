"""From a graph and a plan to a blueprint, by rule: no fragment and no stream is known by its name. Pure.

1. A replica of a group is a worker. In it, the environments with all their inference are one side; a fragment that
   absorbs takes in the pure maps and the stores just before it; every other fragment is a side of its own.
2. Lanes are slices of the environments of each worker that has them: one slice where inference is in the same side,
   else about ``ring`` of them. They are numbered in the order of the environments.
3. A side has a contiguous share of the lanes. So in lockstep a batch has the same environments in the same order under
   every plan.
4. A stream by environment is a wire for each lane. A stream to any is a wire for each writer; back to a store, one for
   each of its replicas. A stream to all is one wire, from the first replica; but readers in the worker of another
   replica of a map read from that replica.
5. Where environments and what acts for them share memory with what is built of their timesteps, they write there.

All of it is on one host; ``placement.py`` puts it on several.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.delivery import Delivery
from weft.graph.fragment import MapCode
from weft.graph.graph import Graph
from weft.graph.split import split
from weft.graph.stream import Rhythm, Sharing, Stream
from weft.plans import Group, Machine, Plan, executable
from weft.runtimes.synchrony import Synchrony
from weft.runtimes.workers.layout.blueprint import Blueprint, Host, Lane, Side, Wire, Worker

DRAWN_AHEAD = 2
"""Messages of a store that are not learned from yet: one is on its way while the other is used."""

DRAWN_TOGETHER, DRAWN_BYTES = 8, 8 << 20
"""Batches of one such message at most, and bytes, where they are more than one."""


def draft(
    plan: Plan, graph: Graph, envs: int, machine: Machine, synchrony: Synchrony, *, ring: int, channel: str
) -> Blueprint:
    """The blueprint of a resolved plan for ``envs`` environments. Raises PlanError where it breaks a rule."""
    executable(plan, graph, machine, envs=envs)
    return _Drafting(plan, split(graph, plan.fragments), envs, machine, synchrony, ring, channel).finish()


class _Drafting:
    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        envs: int,
        machine: Machine,
        synchrony: Synchrony,
        ring: int,
        channel: str,
    ) -> None:
        self.plan, self.graph, self.envs, self.machine = plan, graph, envs, machine
        self.synchrony, self.ring, self.channel = synchrony, ring, channel
        self.workers: list[Worker] = []
        self.sides: list[Side] = []
        self.wires: list[Wire] = []
        self.steps = next(f.name for f in graph.fragments if f.role.makes_steps)
        self.lanes = self._lanes()

    def finish(self) -> Blueprint:
        for group in self.plan.groups:
            for replica in range(group.replicas or 1):
                self._worker(group, replica)
        self._join_all()
        publishers = tuple(f.name for f in self.graph.fragments if f.role.publishes)
        counted = [wire for wire in self.wires if wire.samples]
        takes = {reader for wire in counted for reader in wire.readers}
        roles = {side.index: [self.graph.fragment(n).role for n in side.fragments] for side in self.sides}
        watching = tuple(index for index, found in roles.items() if all(role.watches for role in found))
        stateful = tuple(
            index for index, found in roles.items() if index not in watching and not any(r.every_step for r in found)
        )
        hands_on = takes & {wire.writer for wire in counted}
        transit = tuple(side.index for side in self.sides if side.index in hands_on)
        return Blueprint(
            (Host(0, "here"),),
            tuple(self.workers),
            tuple(self.sides),
            self.lanes,
            tuple(self.wires),
            self.synchrony,
            publishers,
            stateful,
            transit,
            watching,
        )

    # ---- lanes ------------------------------------------------------------------------------------------------------

    def _lanes(self) -> tuple[Lane, ...]:
        group = self.plan.group_of(self.steps)
        workers = group.replicas or 1
        share = self.envs // workers
        slices = 1 if self._acts() <= set(group.fragments) else self._slices(workers, share)
        rows, count = share // slices, workers * slices
        return tuple(Lane(i, i * rows, rows) for i in range(count))

    def _acts(self) -> set[str]:
        return {f.name for f in self.graph.fragments if f.role.every_step}

    def _slices(self, workers: int, share: int) -> int:
        """The ring's size that divides a worker's environments, and all of them among the learners, nearest to asked.

        In one worker with one environment there is nothing to cut.
        """
        fits = [n for n in range(1, share + 1) if share % n == 0]
        for fragment in self.graph.fragments:
            replicas = self._replicas(fragment.name)
            by_environment = any(s.sharing is Sharing.ENVIRONMENT for s in self.graph.into(fragment.name))
            if fragment.role.computes_gradients:
                fits = [n for n in fits if workers * n % replicas == 0]
            elif by_environment and not fragment.role.makes_steps:
                fits = [n for n in fits if workers * n >= replicas]  # each replica has a slice at least
        return min(fits, key=lambda n: (abs(n - self.ring), n))

    def _replicas(self, name: str) -> int:
        return self.plan.group_of(name).replicas or 1

    def _share(self, rank: int, replicas: int) -> tuple[int, ...]:
        """A replica's lanes: a contiguous share of all."""
        count = len(self.lanes)  # lane i is the share of i * replicas // count
        return tuple(range(-(-rank * count // replicas), -(-(rank + 1) * count // replicas)))

    # ---- workers and sides ------------------------------------------------------------------------------------------

    def _worker(self, group: Group, replica: int) -> None:
        index, replicas = len(self.workers), group.replicas or 1
        sides: list[int] = []
        for names in self._as_sides(group):
            head = names[0] if self.steps in names else names[-1]
            fragment = self.graph.fragment(head)
            by_lane = any(
                s.sharing is Sharing.ENVIRONMENT for n in names for s in (*self.graph.into(n), *self.graph.out_of(n))
            )
            lanes = self._share(replica, replicas) if by_lane else ()
            together = fragment.role.one_program and replicas > 1
            stores = tuple(n for n in names if self.graph.fragment(n).role.stores)
            if stores == names:
                sides += self._shards(names, replica, index)
                continue
            kept = stores if replicas > 1 else ()
            side = Side(len(self.sides), fragment.role_name, names, replica, replicas, index, lanes, together, kept)
            self.sides.append(side)
            sides.append(side.index)
        host_only = not any(self.graph.fragment(name).pure for name in group.fragments)
        loads_jax = any(self.graph.fragment(n).pure or n != self.steps for n in group.fragments)
        name = "+".join(group.fragments) + f"-{replica}"
        device = self._device(group, replica, host_only)
        node = group.device.node if group.device is not None else ""
        self.workers.append(Worker(index, name, tuple(sides), device, loads_jax, node=node))

    def _shards(self, names: tuple[str, ...], replica: int, worker: int) -> list[int]:
        """The sides of a store by itself in a worker: its shard, or one for each of its learners; their numbers."""
        replicas = self._replicas(names[0])
        shards = max(replicas, *(self._replicas(s.target) for s in self.graph.out_of(names[0])))
        each, kept, first = shards // replicas, names if shards > 1 else (), len(self.sides)
        made = self.graph.fragment(names[0]).role_name
        for rank in range(replica * each, (replica + 1) * each):
            lanes = self._share(rank, shards)
            self.sides.append(Side(len(self.sides), made, names, rank, shards, worker, lanes, False, kept))
        return list(range(first, len(self.sides)))

    def _as_sides(self, group: Group) -> list[tuple[str, ...]]:
        """A group's fragments, those together that are one side, in the graph's order."""
        names = [n for n in self.graph.names if n in group.fragments]
        taken: dict[str, tuple[str, ...]] = {}
        if self._acts() <= set(names):
            together = tuple(n for n in names if n in self._acts())
            taken |= dict.fromkeys(together, together)
        for name in names:
            if self.graph.fragment(name).role.absorbs:
                together = self._with_maps(name, names)
                taken |= dict.fromkeys(together, together)
        return list(dict.fromkeys(taken.get(name, (name,)) for name in names))

    def _with_maps(self, name: str, group: list[str]) -> tuple[str, ...]:
        """A fragment, and the pure maps and the stores of its group whose messages all end in it."""
        together = {name}
        while True:
            more = {
                f.name
                for f in self.graph.fragments
                if f.name in group and f.name not in together and f.pure
                if f.role.stores or (isinstance(f.code, MapCode) and set(f.code.reads) <= together)
                if {s.target for s in self.graph.out_of(f.name)} <= together
            }
            if not more:
                return tuple(n for n in self.graph.names if n in together)
            together |= more

    def _device(self, group: Group, replica: int, host_only: bool) -> str:
        """Where a worker's JAX runs. Unless told: accelerators, but not for more actors than there are of them."""
        gpus, asked = self.machine.gpus, group.device
        if asked is not None and asked.kind == "node":
            asked = None
        stores = all(self.graph.fragment(name).role.stores for name in group.fragments)
        if group.fragments == (self.steps,) or ((host_only or stores) and asked is None):
            return "cpu"
        if not gpus or (asked is not None and asked.kind == "cpu"):
            return "cpu"
        if asked is None and self.steps in group.fragments and (group.replicas or 1) > gpus:
            return "cpu"
        numbers = list(asked.indices or range(gpus)) if asked else list(range(gpus))
        return f"gpu:{numbers[replica % len(numbers)]}"

    # ---- wires ------------------------------------------------------------------------------------------------------

    def _join_all(self) -> None:
        newest: dict[tuple[str, str], list[Stream]] = {}
        for stream in self.graph.streams:
            if stream.delivery is Delivery.LATEST:
                newest.setdefault((stream.name, stream.source), []).append(stream)
            elif stream.sharing is Sharing.ENVIRONMENT:
                self._by_lane(stream)
            elif stream.feedback:
                self._back(stream)
            else:
                self._by_writer(stream)
        for streams in newest.values():
            self._to_all(streams)
        taken: dict[int, list[Wire]] = {}  # by the side that reads them
        for wire in self.wires:
            if wire.samples and wire.lane < 0:
                for reader in wire.readers:
                    taken.setdefault(reader, []).append(wire)
        for wire in list(self.wires):
            eaten = [self.wires[w.index] for w in taken.get(wire.writer, ())]
            if wire.samples and eaten:  # a map of gradients hands on what several replicas send it
                round_ = sum(w.in_round for w in eaten)  # its reader holds all of a round until it has used them
                self.wires[wire.index] = replace(wire, in_round=round_, capacity=max(wire.capacity, round_))
        sent: dict[tuple[int, int], list[Wire]] = {}  # by the side that writes them, and the lane
        for wire in self.wires:
            if wire.samples:
                sent.setdefault((wire.writer, wire.lane), []).append(wire)
        for wire in self.wires:
            if wire.every_step and wire.source == self.steps and wire.scheme == "shm":
                self.wires[wire.index] = replace(wire, slab=self._slab(wire, sent))

    @staticmethod
    def _slab(timesteps: Wire, sent: dict[tuple[int, int], list[Wire]]) -> int:
        """The wire on which the reader of a lane's timesteps sends what it builds of them; -1 where memory ends."""
        (reader,) = timesteps.readers
        built = sent.get((reader, timesteps.lane), [])
        return built[0].index if len(built) == 1 and built[0].scheme == "shm" else -1

    def _of(self, fragment: str) -> list[Side]:
        return [side for side in self.sides if fragment in side.fragments]

    def _by_lane(self, stream: Stream) -> None:
        writers = {lane: side for side in self._of(stream.source) for lane in side.lanes}
        readers = {lane: side for side in self._of(stream.target) for lane in side.lanes}
        for lane in self.lanes:
            writer, reader = writers[lane.index], readers[lane.index]
            if writer is reader:
                continue
            every_step = stream.rhythm is Rhythm.STEP
            self._join(
                stream,
                writer,
                [reader],
                label=str(lane.index),
                lane=lane.index,
                capacity=1 if every_step else self.synchrony.ahead,
                samples=0 if every_step else self._steps(stream) * lane.rows,
            )

    def _by_writer(self, stream: Stream) -> None:
        """A wire from each replica of the writer to one of the reader, which gets a contiguous share of them."""
        writers, readers = self._of(stream.source), self._of(stream.target)
        for writer in writers:
            reader = readers[writer.rank * len(readers) // len(writers)]
            if writer is reader:
                continue
            eaten = [w for w in self.wires if writer.index in w.readers and w.samples]
            # A gradient stands for one message of each lane; what a map hands on stands for what it took.
            samples = sum(w.samples for w in eaten if w.lane >= 0) or next((w.samples for w in eaten), 0)
            if self.graph.fragment(stream.source).role.stores:
                batches = self._batches(stream.source)
                label = str(writer.rank)
                self._join(stream, writer, [reader], label=label, capacity=DRAWN_AHEAD, drawn=True, batches=batches)
            else:
                self._join(stream, writer, [reader], label=str(writer.rank), capacity=1, samples=samples)

    def _back(self, stream: Stream) -> None:
        """A wire to each replica of a store: what it has drawn is told of to it alone.

        It has room for all that was drawn and one more, so that learn never waits.
        """
        writers, shards = self._of(stream.source), self._of(stream.target)
        for writer in writers:
            for reader in shards:
                if writer is not reader and reader.rank * len(writers) // len(shards) == writer.rank:
                    batches, label = self._batches(stream.target), str(reader.rank)
                    self._join(stream, writer, [reader], label=label, capacity=DRAWN_AHEAD + 1, batches=batches)

    def _batches(self, store: str) -> int:
        """Batches in a message of a store: several, so that small ones cost less; all that follow an unroll are whole
        messages. One, where the store is told of each before it draws the next.
        """
        fragment = self.graph.fragment(store)
        if self.synchrony.told_first and any(s.feedback for s in self.graph.into(store)):
            return 1
        draws = fragment.code.draws(next(s for s in self.graph.into(store) if s.counted).schema)
        each = max(1, sum(s.message_bytes for s in self.graph.out_of(store)))
        most = max(1, min(DRAWN_TOGETHER, DRAWN_BYTES // each))
        return max(n for n in range(1, most + 1) if draws % n == 0)

    def _to_all(self, streams: list[Stream]) -> None:
        stream, targets = streams[0], {s.target for s in streams}
        writers = self._of(stream.source)
        if self.graph.fragment(stream.source).role.publishes:
            writers = writers[:1]  # all replicas have the same
        for writer in writers:
            readers = [
                side
                for side in self.sides
                if targets & set(side.fragments) and side is not writer and self._nearest(side, writers) is writer
            ]
            if readers or self.graph.fragment(stream.source).role.publishes:
                label = str(writer.rank) if len(writers) > 1 else None
                self._join(stream, writer, readers, label=label, capacity=1)

    @staticmethod
    def _nearest(side: Side, writers: list[Side]) -> Side:
        return next((w for w in writers if w.worker == side.worker), writers[0])

    def _steps(self, stream: Stream) -> int:
        """Environment steps of each environment in a message: as its rewards say, else as what it was made from."""
        reward = getattr(stream.schema, "reward", None)
        if reward is not None and len(getattr(reward, "shape", ())) > 1:
            return int(reward.shape[0])
        before = [s for s in self.graph.into(stream.source) if s.counted]
        return self._steps(before[0]) if before else 1

    def _max_lag(self, stream: Stream) -> int:
        """In versions of this plan: where gradients are applied singly, each of a batch's is a version.

        Behind a store each of its draws is one.
        """
        if not self.synchrony.each_gradient_counts:
            return self.synchrony.max_lag
        below, singly = [stream.target], 1
        while below:
            fragment = self.graph.fragment(below.pop())
            if fragment.role.computes_gradients and not fragment.role.publishes:
                singly = self._replicas(fragment.name)
            if fragment.role.stores:
                singly = fragment.code.draws(fragment.inputs[0].schema)
            if not fragment.role.publishes:
                below += [s.target for s in self.graph.out_of(fragment.name) if s.counted]
        source = self.graph.fragment(stream.source)
        if stream.sharing is Sharing.ANY:
            while not source.role.computes_gradients:
                source = self.graph.fragment(next(s.source for s in self.graph.into(source.name) if s.counted))
            singly = self._replicas(source.name)
        return (self.synchrony.max_lag + 1) * singly - 1

    def _join(
        self,
        stream: Stream,
        writer: Side,
        readers: list[Side],
        *,
        label: str | None,
        lane: int = -1,
        capacity: int,
        samples: int = 0,
        drawn: bool = False,
        batches: int = 1,
    ) -> None:
        together = all(reader.worker == writer.worker for reader in readers)
        scheme = "inproc" if together else self.channel
        if together and samples:  # what was sent outlives the worker: its next life trains on it
            scheme = "shm"
        again = any(s.name == stream.name for s in self.graph.into(stream.source))
        name = f"{stream.name}.{stream.source}" if again else stream.name
        self.wires.append(
            Wire(
                len(self.wires),
                name if label is None else f"{name}/{label}",
                stream.name,
                stream.source,
                writer.index,
                tuple(reader.index for reader in readers),
                lane,
                scheme,
                capacity,
                stream.delivery,
                stream.rhythm is Rhythm.STEP,
                samples,
                self._max_lag(stream) if samples else 0,
                drawn=drawn,
                feedback=stream.feedback,
                batches=batches,
            )
        )
