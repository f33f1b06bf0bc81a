"""The machine a plan is filled for: cores, accelerators, memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from weft.plans.plan import Device


@dataclass(frozen=True)
class Machine:
    """What this process may use."""

    cores: int = 1
    gpus: int = 0  # accelerators that JAX sees in this process
    cpu_devices: int = 1  # JAX's CPU devices in this process: 1, or as XLA_FLAGS says
    memory: int = 0  # bytes; 0 where unknown
    hosts: int = 0  # where it stands for a cluster: how many machines it is; every replica is a process then

    @property
    def devices(self) -> int:
        """How many devices JAX runs on by default: the accelerators, or else its CPU devices; of a cluster: hosts."""
        return self.gpus or self.hosts or self.cpu_devices

    def count(self, device: Device | None) -> int:
        """How many devices of this process answer to ``device``: those numbered that exist, or all of the kind."""
        if device is None or device.kind == "node":
            return self.devices
        if device.kind == "cpu":
            return self.cpu_devices
        return (
            self.gpus if device.indices is None else len(range(self.gpus)[device.indices.start : device.indices.stop])
        )

    @classmethod
    def here(cls) -> Machine:
        """This machine, as far as this process may use it. Loads JAX and starts its backends (a second, or a few)."""
        import jax

        default = jax.local_devices()
        gpus = sum(device.platform != "cpu" for device in default)
        return cls(_cores(), gpus, len(jax.local_devices(backend="cpu")), _memory())


def _cores() -> int:
    """The cores this process may run on: affinity, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _control_group("cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def _memory() -> int:
    """Bytes of memory: the machine's, or a container's limit where that is less; 0 where the system does not say."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
    limit = _control_group("memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _control_group(name: str) -> str:
    """What Linux's control group says of a limit on this container; empty where there is none."""
    try:
        return Path("/sys/fs/cgroup", name).read_text()
    except OSError:
        return ""
