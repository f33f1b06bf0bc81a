"""What a host must have to take part in runs: told by its agent, judged by the head, all of it for every host.

A run refuses the first thing that is unfit. ``weft doctor --on`` wants to know everything at once.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from weft.core.descriptors import most_descriptors
from weft.runtimes.cluster.fitness import WORDS

CLOCK_SECONDS = 1.0
"""How far a host's clock may be from the head's: times in logs and of files are compared by people."""

FILES, SHARED, DISK = 1024, 256 << 20, 256 << 20
"""Open files, bytes for shared memory and bytes for logs below which a host is unfit."""

REACH_SECONDS = 3.0
"""How long a connection from one host to another may take."""


class Finding(NamedTuple):
    """One thing about one host."""

    host: str
    what: str
    text: str
    bad: bool = False
    do: str = ""


class Told(NamedTuple):
    """What the agent of a host said, and how its clock stands to the head's."""

    facts: Mapping[str, Any]  # as ``examine`` gives them
    ahead: float  # seconds; below 0 where it is behind
    within: float  # how wrong that may be: half of what a question and its answer took


def examine(interface: str) -> tuple[dict[str, Any], socket.socket | None]:
    """What this host has, as plain data; and a port that listens on ``interface``, which the caller closes."""
    port, trouble = None, ""
    try:
        port = socket.create_server((interface, 0))
    except OSError as error:
        trouble = str(error)
    logs = tempfile.gettempdir()
    return {
        "port": port.getsockname()[1] if port is not None else 0,
        "port_trouble": trouble,
        "files": most_descriptors(),
        "shared": _shared(),
        "disk": shutil.disk_usage(logs).free,
        "logs": logs,
        "now": time.time(),
    }, port


def reach(places: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Connect to addresses and ports, by the names of their hosts; what went wrong, for those that did not answer."""
    wrong = {}
    for name, (address, port) in places.items():
        try:
            socket.create_connection((str(address), int(port)), REACH_SECONDS).close()
        except OSError as error:
            wrong[name] = str(error)
    return wrong


def judge(host: str, fitness: Mapping[str, Any], ours: Mapping[str, str], told: Told | None) -> list[Finding]:
    """What is to be said of a host; ``told`` None where its agent does not understand the question."""
    found = [_same(host, name, str(fitness.get(name, "")), ours[name]) for name in WORDS]
    if told is None:
        do = "Install the same Weft there."
        return [*found, Finding(host, "agent", "does not answer what a host is asked", True, do)]
    facts = told.facts
    clock = f"{told.ahead:+.3f} s, within {told.within:.3f}"
    do = "Have it kept right by NTP (chrony, systemd-timesyncd)."
    found.append(Finding(host, "clock", clock, not abs(told.ahead) - told.within <= CLOCK_SECONDS, do))
    found.append(
        Finding(host, "open files", str(facts["files"]), facts["files"] < FILES, "Allow more: ulimit -Hn 4096")
    )
    shared, disk = int(facts["shared"]), int(facts["disk"])
    do = "Free memory there, or give its container more."
    found.append(Finding(host, "shared memory", _size(shared) if shared else "none", shared < SHARED, do))
    do = f"Free some: workers' logs go to {facts['logs']} where the run's folder is not seen (TMPDIR is another place)."
    found.append(Finding(host, "disk", _size(disk), disk < DISK, do))
    return found


def of_ports(host: str, told: Told, unreached: Mapping[str, str]) -> Finding:
    """Whether a host listens, and reaches the others; ``unreached``: those that it does not, and why."""
    if told.facts["port_trouble"]:
        do = "Its address must be one of its own interfaces: start its Ray node with --node-ip-address."
        return Finding(host, "ports", str(told.facts["port_trouble"]), True, do)
    if unreached:
        text = "; ".join(f"{name}: {why}" for name, why in unreached.items())
        return Finding(host, "ports", text, True, "Let hosts of a run connect to each other's ports above 1024.")
    return Finding(host, "ports", "reaches all")


def _same(host: str, name: str, theirs: str, ours: str) -> Finding:
    what = "sources" if name == "sources" else WORDS[name]
    if theirs == ours:
        return Finding(host, what, theirs)
    return Finding(host, what, f"{theirs or 'none'}, here {ours}", True, f"Install the same {WORDS[name]} there.")


def _shared() -> int:
    """Bytes that memory shared by processes may take here: it is memory like other, in no folder; 0 where none can be.

    A container's limit counts where it is less.
    """
    try:
        os.close(os.memfd_create("weft-checkup", os.MFD_CLOEXEC))
    except (AttributeError, OSError):
        return 0
    free = math.inf
    with suppress(OSError, ValueError, StopIteration, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (group / "memory.max").read_text(), (group / "memory.current").read_text()
        free = min(free, max(0, int(limit) - int(used)))
    return int(free) if math.isfinite(free) else SHARED


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
