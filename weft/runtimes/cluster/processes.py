"""Hosts that are processes of this machine: what crosses hosts can be tried without a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from weft.runtimes.cluster.hosts import Gone, Offer, Share
from weft.runtimes.cluster.line import Invitation
from weft.runtimes.workers.control.endings import how_it_ended
from weft.runtimes.workers.layout.blueprint import Host

LEAVE_SECONDS = 5.0


class ProcessHosts:
    """``count`` hosts that share this machine's cores; or those of ``offers``, each by its command."""

    def __init__(
        self,
        count: int = 0,
        slots: int = 64,
        *,
        head: str = "127.0.0.1",
        offers: Sequence[Offer] = (),
        commands: Sequence[Sequence[str]] = (),
    ) -> None:
        self.head = head
        cores = max(1, (os.cpu_count() or 1) // max(count, 1))
        named = [Offer(Host(i, f"host-{i}", cores, slots=slots), "127.0.0.1") for i in range(count)]
        self._offers = list(offers) or named
        self._commands = list(commands) or [()] * len(self._offers)
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self._told: set[int] = set()

    def offers(self) -> list[Offer]:
        """See ``HostProvider``."""
        return self._offers

    def start(self, invitations: list[Invitation], shares: Mapping[int, Share], seconds: float = 0.0) -> None:
        """See ``HostProvider``."""
        for invitation in invitations:
            self.agents[invitation.host] = start_agent(invitation, self._commands[invitation.host])

    def extend(self, shares: Mapping[int, Share], seconds: float) -> None:
        """See ``HostProvider``: nothing is reserved."""

    def give_back(self, shares: Mapping[int, Share]) -> None:
        """See ``HostProvider``."""

    def gone(self) -> list[Gone]:
        """See ``HostProvider``."""
        found = []
        for host, process in self.agents.items():
            if host not in self._told and process.poll() is not None:
                self._told.add(host)
                found.append(Gone(host, f"its agent {how_it_ended(process.returncode)}"))
        return found

    def close(self) -> None:
        """See ``HostProvider``."""
        end_agents(list(self.agents.values()))
        self.agents = {}


def start_agent(
    invitation: Invitation, command: Sequence[str] = (), *, outlives_thread: bool = False
) -> subprocess.Popen[bytes]:
    """An agent on this machine, which ends when its standard input does; ``command`` goes before Python's.

    It is killed when the thread that starts it ends, with its process or before; unless ``outlives_thread``.
    """
    package = str(Path(__file__).resolve().parents[3])
    program = f"import sys; sys.path.insert(0, {package!r}); from weft.runtimes.cluster.agent import main; "
    program += f"main(outlives_thread={outlives_thread})"
    process = subprocess.Popen(
        [*command, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the head, which tells it what to do
    )
    assert process.stdin is not None
    with suppress(OSError):  # it has died: ``gone`` says so
        process.stdin.write(json.dumps(invitation.to_json()).encode() + b"\n")
        process.stdin.flush()
    return process


def end_agents(agents: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close their standard inputs, so that they end their workers and leave; kill those that do not."""
    for process in agents:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
    for process in agents:
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
