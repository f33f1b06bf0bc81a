"""Hosts in network namespaces of this machine, each with its own address, joined by a bridge. Needs root and ``ip``."""

from __future__ import annotations

import subprocess
import time
from typing import Any


class Namespaces:
    """Numbered hosts; this machine is the head, at ``head``. ``net``: of several sets at once, each needs its own."""

    def __init__(self, count: int, net: int = 77) -> None:
        self.hosts: set[int] = set()
        self._net, self._bridge, self.head = net, f"weft{net}", f"10.{net}.0.254"
        _ip("link", "add", self._bridge, "type", "bridge")
        try:
            _ip("addr", "add", f"{self.head}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in range(count):
                self.add(host)
        except BaseException:
            self.close()
            raise

    def add(self, host: int) -> None:
        """One more."""
        self.hosts.add(host)
        name, link = self._name(host), self._link(host)
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for each in ("eth0", "lo"):
            _ip("-n", name, "link", "set", each, "up")

    def remove(self, host: int) -> None:
        """Take its network away; its processes are another matter."""
        self.hosts.discard(host)
        subprocess.run(["ip", "link", "del", self._link(host)], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._name(host)], check=False, capture_output=True)

    def provider(self) -> Any:
        """Hosts for a run whose agents are processes in the namespaces."""
        from weft.runtimes.cluster.hosts import Offer
        from weft.runtimes.cluster.processes import ProcessHosts
        from weft.runtimes.workers.layout.blueprint import Host

        hosts = sorted(self.hosts)
        offers = [Offer(Host(host, f"host-{host}", 1, slots=64), self.address(host)) for host in hosts]
        return ProcessHosts(head=self.head, offers=offers, commands=[self.inside(host) for host in hosts])

    def cut(self, host: int, seconds: float) -> None:
        """Take a host's link down for a while. Blocks."""
        _ip("link", "set", self._link(host), "down")
        time.sleep(seconds)
        _ip("link", "set", self._link(host), "up")

    def limit(self, host: int, rate: str) -> None:
        """Let a host send so much and no more: ``100mbit``, ``1gbit``, as tc's token bucket has it."""
        bucket = ("rate", rate, "burst", "256kb", "latency", "50ms")
        subprocess.run(
            [*self.inside(host), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *bucket], check=True
        )

    def close(self) -> None:
        """Remove all of it."""
        for host in list(self.hosts):
            self.remove(host)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

    def address(self, host: int) -> str:
        """Of a host, as the others see it."""
        return f"10.{self._net}.0.{host + 1}"

    def inside(self, host: int) -> tuple[str, ...]:
        """What goes before a command that shall run on a host."""
        return ("ip", "netns", "exec", self._name(host))

    def _name(self, host: int) -> str:
        return f"weft{self._net}-{host}"

    def _link(self, host: int) -> str:
        return f"weft{self._net}v{host}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
