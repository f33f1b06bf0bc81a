"""What gives hosts: Ray is one, processes on this machine are another. The rest of the runtime knows only this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from weft.runtimes.cluster.line import Invitation
from weft.runtimes.workers.layout.blueprint import Host


class Offer(NamedTuple):
    """A host that may be used, and the address of its machine by which the others reach it."""

    host: Host
    interface: str


class Share(NamedTuple):
    """What a run uses of a host."""

    cores: int
    gpus: int


class Gone(NamedTuple):
    """A host that is no longer there, and why, in words."""

    host: int
    why: str


class HostProvider(Protocol):
    """Hosts for one run. Everything that it has started ends with ``close``, and with this process."""

    head: str  # the address of this machine by which its hosts reach it

    def offers(self) -> list[Offer]:
        """What there is, numbered from 0. Nothing is taken yet. Raises ConfigError where nothing can be had.

        Asked again, hosts that have joined since come after those that were known; one that has left keeps its number,
        and has no room.
        """
        ...

    def start(self, invitations: list[Invitation], shares: Mapping[int, Share], seconds: float) -> None:
        """Take these hosts, and start an agent on each (``agent.py``). Raises ConfigError where they are not to be had.

        ``shares``: by host, what the run uses of it at first. ``seconds``: how long it may take until they are given.
        Returns before the agents have reported.
        """
        ...

    def extend(self, shares: Mapping[int, Share], seconds: float) -> None:
        """Have at least these shares of hosts that have an agent.

        Raises ConfigError where they are not to be had, within ``seconds`` for each host; then all is as it was.
        """
        ...

    def give_back(self, shares: Mapping[int, Share]) -> None:
        """Give back what ``extend`` got beyond these shares of all hosts, as far as it comes apart."""
        ...

    def gone(self) -> list[Gone]:
        """Hosts that have been lost since this was asked last. Does not wait."""
        ...

    def close(self) -> None:
        """End all agents and give the hosts back; may be called twice."""
        ...
