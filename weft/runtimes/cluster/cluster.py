"""The hosts of one run as the head sees them: agents started, asked, heard, and given up."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from weft.core.errors import ConfigError, WorkerFailed
from weft.plans.machine import Machine
from weft.runtimes.cluster.fitness import check_fit, fitness
from weft.runtimes.cluster.hosts import HostProvider, Share
from weft.runtimes.cluster.line import LEASE_SECONDS
from weft.runtimes.cluster.switchboard import Switchboard
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.layout.blueprint import Host

RESERVE_SECONDS = 60.0
"""How long a provider may take to give the hosts of a run that begins: others may use them now."""

REPORT_SECONDS = 60.0
"""The time that agents have to report, once they are started."""

MOVE_SECONDS = 15.0
"""The same, for both, of a run that is under way: nothing is supervised meanwhile, and other hosts may do."""

GRACE_SECONDS = 10.0
"""How much longer than its lease an agent may be silent: by then it has ended its workers, wherever it is."""

SILENT_SECONDS = 2.0
"""After so long without a word what a host's workers do is not known, and they are not blamed for standing still."""


class Cluster:
    """Hosts from a provider. ``take`` gets, in a thread of its own, what must not wait; the rest is in ``words``."""

    def __init__(self, provider: HostProvider) -> None:
        self.provider = provider
        self.offers = provider.offers()
        self.take: Callable[[int, LinkMessage], None] = lambda host, message: None
        self.words: queue.SimpleQueue[tuple[int, LinkMessage]] = queue.SimpleQueue()
        self.must_fit = False  # every worker has a home, or the run goes over to fewer
        self.started: set[int] = set()
        self.lost: dict[int, str] = {}  # and why
        self._reported: dict[int, dict[str, Any]] = {}
        self._broke: dict[int, str] = {}  # what agents said before they left
        self._answers: dict[int, LinkMessage] = {}
        self._answered = threading.Condition()
        self._numbers = itertools.count()
        self._board: Switchboard | None = None

    @property
    def machine(self) -> Machine:
        """All hosts together, as plans count."""
        hosts = [offer.host for offer in self.offers]
        return Machine(cores=sum(h.cores for h in hosts), gpus=sum(h.gpus for h in hosts), hosts=len(hosts))

    @property
    def alive(self) -> list[int]:
        """The hosts with an agent that works, as far as is known."""
        return sorted(self.started - set(self.lost))

    def renew(self) -> None:
        """Look for hosts that have joined, and for those that have left before they were used."""
        with suppress(ConfigError):  # there is none left: those that are known have no agents either
            self.offers = self.provider.offers()

    def start(self, shares: Mapping[int, Share], *, moving: bool = False) -> None:
        """Start agents on these hosts, wait until they have reported, and compare them with this host.

        Raises ConfigError where one is unfit, or does not come. Blocks for up to ``RESERVE_SECONDS`` and
        ``REPORT_SECONDS``; where a run is under way (``moving``), for up to ``MOVE_SECONDS`` each.
        """
        reserve, report = (MOVE_SECONDS, MOVE_SECONDS) if moving else (RESERVE_SECONDS, REPORT_SECONDS)
        new = sorted(set(shares) - self.started)
        if late := self.begin(shares, reserve, report):
            why = [f"{self.name(host)} ({words})" for host, words in late.items()]
            raise ConfigError(f"the agents of these hosts did not report: {', '.join(why)}.")
        ours = fitness()
        for host in new:
            check_fit(self.name(host), self._reported[host], ours)

    def secure(self, shares: Mapping[int, Share]) -> None:
        """Have these shares of hosts, with agents, for a run that is to be placed anew; what it has now stays.

        Raises ConfigError where they are not to be had. Blocks as ``start`` does of a run under way.
        """
        self.provider.extend({host: share for host, share in shares.items() if host in self.alive}, MOVE_SECONDS)
        before = set(self.started)
        try:
            self.start(shares, moving=True)
        except ConfigError as error:
            self.give_up(self.started - before, str(error))
            raise

    @property
    def usable(self) -> list[Host]:
        """The hosts with room that are not lost, whether they have an agent yet or not."""
        return [offer.host for offer in self.offers if offer.host.index not in self.lost and offer.host.room]

    def begin(
        self, shares: Mapping[int, Share], reserve: float, report: float, *, every: bool = False
    ) -> dict[int, str]:
        """Start agents on these hosts, and wait until each has reported, or is late: those that are, and why.

        It ends at the first that is lost, unless it waits for ``every`` one. ``reserve``, ``report``: seconds for the
        provider, and then for the agents. Raises ConfigError where the provider does not give the hosts.
        """
        new = sorted(set(shares) - self.started)
        if not new:
            return {}
        if self._board is None:
            self._board = Switchboard(self.provider.head, self._deliver)
        board = self._board
        self.provider.start([board.invitation(host, self.offers[host].interface) for host in new], shares, reserve)
        self.started |= set(new)
        deadline = time.monotonic() + report
        while late := [host for host in new if host not in self._reported]:
            self.look()
            if (all if every else any)(host in self.lost for host in late) or time.monotonic() > deadline:
                return {host: self.lost.get(host, "no word of it") for host in late if host not in self._reported}
            time.sleep(0.01)
        return {}

    def reported(self, host: int) -> Mapping[str, Any]:
        """What its agent said as it came: its process, and what ``fitness`` gives there."""
        return self._reported[host]

    def name(self, host: int) -> str:
        """What a host is called."""
        return self.offers[host].host.name

    def pid(self, host: int) -> int:
        """The process of its agent, there."""
        return int(self._reported[host]["pid"])

    def say(
        self, host: int, topic: str, body: dict[str, Any] | None = None, arrays: Sequence[np.ndarray[Any, Any]] = ()
    ) -> None:
        """Send to an agent; does not wait."""
        assert self._board is not None
        self._board.say(host, topic, body, arrays)

    def ask(
        self, hosts: dict[int, dict[str, Any]], topic: str, seconds: float = LEASE_SECONDS + GRACE_SECONDS
    ) -> dict[int, LinkMessage]:
        """Ask several agents at once, and wait for the answers; a host that is lost meanwhile gives none."""
        numbers = {host: next(self._numbers) for host in hosts if host not in self.lost}
        for host, number in numbers.items():
            self.say(host, topic, {**hosts[host], "id": number})
        deadline, found = time.monotonic() + seconds, dict[int, LinkMessage]()
        while True:
            with self._answered:
                for host, number in numbers.items():
                    if number in self._answers:
                        found[host] = self._answers.pop(number)
                if numbers.keys() <= found.keys() | self.lost.keys():
                    return found
                self._answered.wait(0.05)
            self.look()
            if time.monotonic() > deadline:
                late = ", ".join(self.name(h) for h in numbers if h not in found and h not in self.lost)
                raise WorkerFailed(f"no answer to {topic!r} from {late} within {seconds:.0f} s")

    def look(self) -> list[int]:
        """Find hosts that are lost; those that are new. Does not wait.

        A host that its provider gives up is lost. So is one whose line is broken, or that is silent, but only when its
        agent has ended its workers by itself: two lives of a worker must never be at work at once.
        """
        assert self._board is not None
        now, found = time.monotonic(), []
        for host, why in self.provider.gone():
            if host in self.started and host not in self.lost:
                self.lost[host] = self._broke.get(host, why)
                found.append(host)
        for host in self.alive:
            heard = self._board.heard_at.get(host)
            if heard is not None and now - heard > LEASE_SECONDS + GRACE_SECONDS:
                broken = self._board.broken.get(host, "")
                self.lost[host] = broken or f"nothing was heard of it for {now - heard:.0f} s"
                found.append(host)
        return found

    def give_up(self, hosts: set[int], why: str) -> None:
        """Count hosts as lost that were not to be had."""
        self.started |= hosts
        self.lost |= dict.fromkeys(hosts, why)

    def is_silent(self, host: int) -> bool:
        """Whether its workers' words are old."""
        assert self._board is not None
        return time.monotonic() - self._board.heard_at.get(host, 0.0) > SILENT_SECONDS

    def close(self) -> None:
        """End all agents and give the hosts back; may be called twice."""
        for host in self.alive:
            self.say(host, "leave")
        self.provider.close()
        if self._board is not None:
            self._board.close()
            self._board = None
        self.started = set()

    def _deliver(self, host: int, message: LinkMessage) -> None:
        if host in self.lost:
            return  # a life that was given up: what it says is late
        match message.topic:
            case "here":
                self._reported[host] = message.body
            case "answer":
                with self._answered:
                    self.take(host, message)
                    self._answers[message.body["id"]] = message
                    self._answered.notify_all()
            case "broke":
                self._broke[host] = str(message.body["why"])
            case "idle":
                pass
            case _:
                self.take(host, message)
