"""What ``--on`` names: where a run's hosts come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from weft.core.errors import ConfigError
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.hosts import HostProvider

FORMS = "local, ray, ray://HOST:PORT, HOST:PORT or processes:N"
MAX_PROCESSES = 64


@contextmanager
def opened(on: str, *, trust_network: bool = False) -> Iterator[Cluster]:
    """The cluster that ``on`` names, given back at the end. No agent is started yet.

    Raises ConfigError where there is none, or where it must not be used.
    """
    provider = _provider(on, trust_network)
    try:
        cluster = Cluster(provider)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        provider.close()


def _provider(on: str, trust_network: bool) -> HostProvider:
    if match := re.fullmatch(r"processes:([0-9]{1,6})", on):
        from weft.runtimes.cluster.processes import ProcessHosts

        count = int(match[1])
        if not 1 <= count <= MAX_PROCESSES:
            raise ConfigError(f"on={on!r}: between 1 and {MAX_PROCESSES} hosts can be processes of this machine")
        return ProcessHosts(count)
    if on == "ray" or re.fullmatch(r"(ray://)?[A-Za-z0-9.\-]+:[0-9]{1,5}", on):
        from weft.runtimes.cluster.ray_hosts import RayHosts

        return RayHosts(None if on == "ray" else on, trust_network=trust_network)
    raise ConfigError(f"on={on!r} is no runtime: expected {FORMS}.")
