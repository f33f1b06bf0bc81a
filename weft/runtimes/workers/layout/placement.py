"""Which worker runs on which host, and what that makes of the wires. Pure.

1. A worker that asks for a node goes to a host with that label, one that computes on a GPU to a host with one to spare.
2. What learns or stores goes first; then what acts, then the environments, then the rest. Each goes where there is
   room, as near as can be to those that it answers at every step, and else to the host with the least to do.
3. A wire whose ends are all on one host stays as it was; one that crosses is ``tcp``. The newest params cross once to
   each host, and are handed on there: to its ends such a wire looks as if it were within the host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from weft.core.delivery import Delivery
from weft.core.errors import PlanError
from weft.graph.role import role
from weft.runtimes.workers.layout.blueprint import Blueprint, Host, Wire, Worker


def place(blueprint: Blueprint, hosts: Sequence[Host]) -> Blueprint:
    """The blueprint over ``hosts``, which are numbered from 0. Raises PlanError where no host has what is asked for."""
    _check_asked(blueprint, hosts)
    seats = _Seats(blueprint, hosts)
    for worker in sorted(blueprint.workers, key=lambda w: (_order(blueprint, w), w.index)):
        if seats.seat(worker) is None:
            raise PlanError(_no_room(worker, hosts))
    return joined(blueprint, hosts, seats.workers)


def move(
    drafted: Blueprint, blueprint: Blueprint, lost: Collection[int], lives: Collection[int]
) -> tuple[Blueprint, list[int]]:
    """The workers of hosts that are ``lost``, placed on the others where there is room; and those that find none.

    ``blueprint`` is what ``place`` or ``move`` made of ``drafted``. ``lives``: the workers that run, and stay where
    they are. Wires between one of these and a worker that moves are over sockets already, and stay so, also where both
    are on one host now.
    """
    kept = {w.index: w for w in blueprint.workers if w.host not in lost}
    seats = _Seats(blueprint, [h for h in blueprint.hosts if h.index not in lost], kept)
    moving = [w for w in blueprint.workers if w.host in lost]
    without = [
        worker.index
        for worker in sorted(moving, key=lambda w: (_order(blueprint, w), w.index))
        if seats.seat(worker) is None
    ]
    where = {w.index: seats.workers.get(w.index, w) for w in blueprint.workers}
    open_ends = {wire.index for wire in blueprint.wires if wire.scheme == "tcp" and _ends(blueprint, wire) & set(lives)}
    return joined(drafted, blueprint.hosts, where, open_ends), without


def joined(
    blueprint: Blueprint, hosts: Sequence[Host], workers: Mapping[int, Worker], sockets: Collection[int] = ()
) -> Blueprint:
    """A blueprint with its workers placed, and the wires that follow; ``sockets``: those over sockets anyway."""
    placed = replace(blueprint, hosts=tuple(hosts), workers=tuple(workers[w.index] for w in blueprint.workers))
    wires = [replace(wire, scheme=_scheme(placed, wire, sockets)) for wire in placed.wires]
    for wire in wires:
        if wire.slab >= 0 and not wire.scheme == wires[wire.slab].scheme == "shm":
            wires[wire.index] = replace(wire, slab=-1)
    return replace(placed, wires=tuple(wires))


def crossing(blueprint: Blueprint) -> list[Wire]:
    """The wires whose ends are on several hosts."""
    return [wire for wire in blueprint.wires if len(blueprint.hosts_of(wire)) > 1]


def _scheme(placed: Blueprint, wire: Wire, sockets: Collection[int]) -> str:
    if wire.delivery is Delivery.LATEST:
        return wire.scheme
    return "tcp" if len(placed.hosts_of(wire)) > 1 or wire.index in sockets else wire.scheme


def _ends(blueprint: Blueprint, wire: Wire) -> set[int]:
    """The workers of a wire's ends."""
    return {blueprint.sides[side].worker for side in (wire.writer, *wire.readers)}


def _order(blueprint: Blueprint, worker: Worker) -> int:
    roles = [role(blueprint.sides[s].role) for s in worker.sides]
    if any(r.computes_gradients or r.publishes or r.stores for r in roles):
        return 0
    if any(r.makes_steps for r in roles):
        return 2
    return 1 if any(r.every_step for r in roles) else 3


class _Seats:
    """The hosts as they fill; ``workers`` are those that have a place."""

    def __init__(self, blueprint: Blueprint, hosts: Sequence[Host], taken: Mapping[int, Worker] | None = None) -> None:
        self.blueprint, self.hosts = blueprint, hosts
        self.workers: dict[int, Worker] = dict(taken or {})

    def seat(self, worker: Worker) -> Worker | None:
        """Place it; None where no host has room for it."""
        fits = [host for host in self.hosts if self._fits(worker, host)]
        if not fits:
            return None
        near = self._near(worker)
        best = min(fits, key=lambda h: (-near.get(h.index, 0), (len(self._on(h)) + 1) / h.room, h.index))
        device = f"gpu:{self._free_gpus(best)[0]}" if worker.device != "cpu" else "cpu"
        self.workers[worker.index] = placed = replace(worker, host=best.index, device=device)
        return placed

    def _on(self, host: Host) -> list[Worker]:
        return [w for w in self.workers.values() if w.host == host.index]

    def _fits(self, worker: Worker, host: Host) -> bool:
        if worker.node and worker.node not in (host.name, *host.labels):
            return False
        if worker.device != "cpu" and not self._free_gpus(host):
            return False
        return len(self._on(host)) < host.room

    def _free_gpus(self, host: Host) -> list[int]:
        taken = {w.device for w in self._on(host)}
        return [n for n in range(host.gpus) if f"gpu:{n}" not in taken]

    def _near(self, worker: Worker) -> dict[int, int]:
        """By host, the wires of every step that lead there."""
        found: dict[int, int] = {}
        for wire in self.blueprint.wires:
            ends = _ends(self.blueprint, wire)
            if wire.every_step and worker.index in ends:
                for other in ends - {worker.index}:
                    if other in self.workers:
                        at = self.workers[other].host
                        found[at] = found.get(at, 0) + 1
        return found


def _check_asked(blueprint: Blueprint, hosts: Sequence[Host]) -> None:
    """Refuse what these hosts can never give, whatever else they have to do."""
    for worker in blueprint.workers:
        labelled = [h for h in hosts if not worker.node or worker.node in (h.name, *h.labels)]
        if not labelled or (worker.device != "cpu" and not any(h.gpus for h in labelled)):
            raise PlanError(_no_room(worker, hosts))
    room = sum(host.room for host in hosts)
    if len(blueprint.workers) > room:
        raise PlanError(
            f"the plan is {len(blueprint.workers)} workers, a core each, and the cluster has {room}: {_has(hosts)}. "
            "Use fewer replicas, or a larger cluster."
        )


def _no_room(worker: Worker, hosts: Sequence[Host]) -> str:
    wants = f"a node {worker.node!r}" if worker.node else "a core"
    wants += " with a GPU to spare" if worker.device != "cpu" else " to spare"
    return f"worker {worker.name} wants {wants}, and the cluster has none: {_has(hosts)}."


def _has(hosts: Sequence[Host]) -> str:
    def words(host: Host) -> str:
        gpus = f", {host.gpus} GPUs" if host.gpus else ""
        labels = f", labelled {' '.join(host.labels)}" if host.labels else ""
        return f"{host.name} ({host.cores} cores{gpus}{labels})"

    return "; ".join(words(host) for host in hosts)
