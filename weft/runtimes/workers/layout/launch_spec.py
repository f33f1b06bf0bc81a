"""What a run's workers will be given: blueprint, channels, recipes. What cannot be is refused here; nothing starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.core.descriptors import need_descriptors
from weft.core.errors import ConfigError
from weft.core.recipe import to_recipe
from weft.graph.describe import describe_bytes
from weft.runtimes.prepare.config import Prepared, Settings
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.runtimes.workers.layout.draft import draft
from weft.runtimes.workers.layout.schemas import Schemas
from weft.streams.channel import ChannelSpec
from weft.streams.registry import SOCKET_SCHEMES, check_scheme
from weft.streams.ring import Ring


@dataclass(frozen=True)
class LaunchSpec:
    """Plain data: nothing of it is allocated."""

    blueprint: Blueprint
    specs: Mapping[str, ChannelSpec]  # of every wire, by its name
    common: Mapping[str, Any]  # what every worker is told: the recipes of algorithm and environment, and the seed

    def memory(self, *schemes: str) -> dict[str, int]:
        """Bytes that the channels of these schemes will take, of all unless named, by stream and the largest first."""
        taken: dict[str, int] = {}
        for wire in self.blueprint.wires:
            if not schemes or wire.scheme in schemes:
                rings = 1 + len(wire.readers) if wire.scheme in SOCKET_SCHEMES else 1  # over a socket each end has one
                taken[wire.stream] = taken.get(wire.stream, 0) + rings * Ring.nbytes(self.specs[wire.name])
        return dict(sorted(taken.items(), key=lambda item: -item[1]))

    def descriptors(self) -> int:
        """File descriptors of the process that has most of them: the launcher's, or a worker's with many connections.

        A bell and a link for each side; memory of its own for each wire in shared memory; over sockets two for each
        listener, which many wires may share, and at the workers one or two for each connection.
        """
        scheme = {wire.name: wire.scheme for wire in self.blueprint.wires}
        at_launcher, at_worker = 2 * len(self.blueprint.sides), dict[int, int]()
        for names in self.blueprint.listeners():
            at_launcher += 2 if scheme[names[0]] in SOCKET_SCHEMES else len(names)
        for wire in self.blueprint.wires:
            if wire.scheme in SOCKET_SCHEMES:
                for end in (wire.writer, *wire.readers):
                    worker = self.blueprint.sides[end].worker
                    at_worker[worker] = at_worker.get(worker, 0) + 2
        return max(at_launcher, max(at_worker.values(), default=0))


def launch_spec(prepared: Prepared, settings: Settings) -> LaunchSpec:
    """What a run in workers is launched with.

    Raises PlanError where lanes cannot be shared out, ConfigError where workers could not import what they must make,
    the machine's memory does not hold the channels, or it has not what the channel needs. Raises this process's limit
    of descriptors, which workers inherit, where that is too low.
    """
    check_scheme(settings.channel, f"--channel {settings.channel}")
    blueprint = draft(
        prepared.plan,
        prepared.graph,
        prepared.envs,
        prepared.machine,
        prepared.synchrony,
        ring=settings.ring,
        channel=settings.channel,
    )
    common = {
        "algorithm": to_recipe(prepared.algorithm, "the algorithm"),
        "spec": to_recipe(prepared.algorithm.spec),
        "source": _source_recipe(prepared),
        "seed": prepared.seed,
        "pace": list(prepared.pace),
        "dials": list(prepared.dials.names) if prepared.dials else [],
    }
    schemas = Schemas(blueprint, prepared.algorithm, pure_env=prepared.source.pure is not None)
    compress = settings.on != "local" and settings.compress == "images"
    launch = LaunchSpec(blueprint, schemas.channels(compress=compress), common)
    _check_memory(prepared, launch)
    need_descriptors(launch.descriptors(), f"plan '{prepared.plan}'")
    return launch


def _check_memory(prepared: Prepared, launch: LaunchSpec) -> None:
    there, taken = prepared.machine.memory, launch.memory()
    if not there or sum(taken.values()) <= there:
        return
    each = ", ".join(f"{stream} {describe_bytes(nbytes)}" for stream, nbytes in taken.items())
    smaller = ["fewer --envs", "a shorter --algo.unroll", *(["a smaller --max-lag"] if prepared.max_lag else [])]
    raise ConfigError(
        f"the streams of plan '{prepared.plan}' need {describe_bytes(sum(taken.values()))} of memory ({each}), and "
        f"there are {describe_bytes(there)} here. Use {', '.join(smaller[:-1])} or {smaller[-1]}."
    )


def _source_recipe(prepared: Prepared) -> Any:
    """How workers make the environment: put together as here, or opened anew by its name."""
    source = prepared.source
    try:
        return to_recipe(source, f"environment {source.name!r}")
    except ConfigError:
        if ":" not in source.name or source.name.startswith(("gymnax:", "weft:")):
            options = to_recipe(dict(prepared.env_options))
            guards = [prepared.env_errors, prepared.env_bounds]
            return {"open": source.name, "vector": prepared.vector, "options": options, "guards": guards}
        raise
