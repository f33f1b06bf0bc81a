"""Whether what a run will hold fits where it will lie: looked at before anything starts."""

from __future__ import annotations

from weft.core.errors import ConfigError
from weft.graph.describe import describe_bytes
from weft.graph.graph import Graph
from weft.graph.store import stored_bytes, stores_of
from weft.plans import Machine, Plan


def fits_in_memory(graph: Graph, plan: Plan, machine: Machine, seeds: int = 0) -> None:
    """Return if the stores of a graph fit into the memory that they lie in; else ``ConfigError``.

    That is the device's, beside a learner; by themselves they are in the host's.
    """
    if not stores_of(graph):
        return
    needed = {name: size * max(seeds, 1) for name, size in stored_bytes(graph).items()}
    group = next(group for group in plan.groups if set(needed) & set(group.fragments))
    beside = any(graph.fragment(name).role.publishes for name in group.fragments if name in graph.names)
    on_gpu = beside and machine.gpus > 0 and (group.device is None or group.device.kind == "gpu")
    there = _device_memory() if on_gpu else machine.memory
    if there and sum(needed.values()) > there:
        each = ", ".join(f"{name} {describe_bytes(size)}" for name, size in needed.items())
        where = "the device" if on_gpu else "this machine"
        raise ConfigError(
            f"what the run keeps takes {describe_bytes(sum(needed.values()))} of memory ({each}), and {where} has "
            f"{describe_bytes(there)}. Choose a smaller capacity, or fewer seeds."
        )


def _device_memory() -> int:
    """Bytes of memory that JAX may use on its first device; 0 where it does not say."""
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("bytes_limit", 0))
