"""Hosts from Ray: it gives machines and says when one is gone. The only file of Weft that imports Ray.

A placement group reserves, all at once, what the plan needs of each node. In each bundle runs one light actor, which
starts the host's agent and ends with its node. Ray restarts none of them: the supervisor decides about new lives, since
it knows what has become of the samples.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from weft.core.errors import ConfigError
from weft.runtimes.cluster.hosts import Gone, Offer, Share
from weft.runtimes.cluster.line import Invitation
from weft.runtimes.workers.layout.blueprint import Host

ANSWER_SECONDS = 5.0
"""How long an address may take to answer."""

OWN_SLOTS = 64
"""Workers that a Ray which we start for one run has room for."""

_OWN = ("CPU", "GPU", "memory", "object_store_memory", "bundle", "accelerator_type", "node:")


class RayHosts:
    """See ``HostProvider``. ``address`` None: the cluster that this machine is part of, else a Ray of our own."""

    def __init__(self, address: str | None, *, trust_network: bool = False) -> None:
        if address is not None:
            _check_answers(address)
        self._ray = _import_ray()
        self._trusted, self._ours, self._connected = trust_network, False, False
        self._groups: list[Any] = []
        self._shares: dict[int, Share] = {}  # what each host's agent was reserved with
        self._more: dict[int, list[tuple[int, Any]]] = {}  # cores that were reserved later, and their placement groups
        self._actors: dict[int, Any] = {}
        self._watches: dict[int, Any] = {}
        self._nodes: list[str] = []  # Ray's ids, by host
        self._offers: list[Offer] = []
        self._told: set[int] = set()
        try:
            self._connect(address)
            self.head = self._own_address()
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None) -> None:
        ray = self._ray
        if ray.is_initialized():
            self._check_token("the Ray that this process uses")
            return
        how: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
        if address is not None:
            try:
                ray.init(address=address, **how)
            except Exception as error:
                raise ConfigError(f"on={address!r}: Ray does not let us in: {_first_line(error)}") from error
            self._connected = True
            self._check_token(f"the Ray cluster at {address}")
            return
        try:
            ray.init(address="auto", **how)
            self._connected = True
        except ConnectionError:  # there is none
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            ray.init(
                address="local",
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                num_cpus=OWN_SLOTS,  # it has more workers than cores where asked to, as the local runtime has
                **how,
            )
            self._connected = self._ours = True
            return
        self._check_token("the Ray cluster of this machine")

    def _check_token(self, what: str) -> None:
        """Refuse a cluster that lets anybody run code on it, unless the user has said so."""
        if self._trusted or _asks_for_token():
            return
        raise ConfigError(
            f"{what} has no token authentication: whoever reaches it can run code on its nodes, as you. Start it with "
            "RAY_AUTH_MODE=token, and run this with the same and the token; or say --trust-network, where only those "
            "that you trust can reach it (docs/trust.md)."
        )

    def _own_address(self) -> str:
        if self._ours:
            return "127.0.0.1"
        return str(self._ray.util.get_node_ip_address())

    def offers(self) -> list[Offer]:
        """See ``HostProvider``: the nodes that are alive, with all that they have."""
        found = self._offers
        nodes = sorted(self._ray.nodes(), key=lambda n: (n["NodeManagerAddress"], n["NodeID"]))
        alive = [node for node in nodes if node["Alive"]]
        here = {node["NodeID"] for node in alive}
        for at, known in enumerate(found):
            if self._nodes[at] not in here:
                found[at] = known._replace(host=replace(known.host, cores=0, gpus=0, slots=0))
        for node in alive:
            cores = int(node["Resources"].get("CPU", 0))
            if not cores or node["NodeID"] in self._nodes:
                continue
            custom = [name for name in node["Resources"] if not name.startswith(_OWN)]
            labels = [f"{k}={v}" for k, v in (node.get("Labels") or {}).items() if not k.startswith("ray.io/")]
            name = node.get("NodeName") or node["NodeManagerAddress"]
            if any(other.host.name == name for other in found):
                name = f"{name}-{node['NodeID'][:6]}"
            gpus = int(node["Resources"].get("GPU", 0))
            slots = OWN_SLOTS if self._ours else 0
            cores = os.cpu_count() or 1 if self._ours else cores
            host = Host(len(found), name, cores, gpus, (*custom, *labels), slots)
            found.append(Offer(host, node["NodeManagerAddress"]))
            self._nodes.append(node["NodeID"])
        if not found:
            raise ConfigError("the Ray cluster has no node with a CPU.")
        return list(found)

    def start(self, invitations: list[Invitation], shares: Mapping[int, Share], seconds: float) -> None:
        """See ``HostProvider``. Waits until Ray has reserved all of it."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        hosts = [invitation.host for invitation in invitations]
        bundles = [_bundle(shares[host]) for host in hosts]
        group = self._reserved(hosts, bundles, seconds)
        self._shares |= {host: shares[host] for host in hosts}
        self._groups.append(group)
        for at, invitation in enumerate(invitations):
            bundle = bundles[at]
            actor = self._ray.remote(_HostActor).options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, at),
            )
            made = actor.remote(invitation.to_json())
            self._actors[invitation.host], self._watches[invitation.host] = made, made.watch.remote()

    def extend(self, shares: Mapping[int, Share], seconds: float) -> None:
        """See ``HostProvider``: what is missing, in placement groups of their own."""
        missing: dict[int, int] = {}
        for host, share in shares.items():
            has = self._shares[host]
            if share.gpus > has.gpus:
                raise ConfigError(
                    f"host {self._offers[host].host.name} was taken with {has.gpus} GPUs, Ray gives its agent no "
                    f"others, and {share.gpus} are wanted there. Scale within these, or begin another run."
                )
            missing[host] = share.cores - has.cores - sum(cores for cores, _ in self._more.get(host, ()))
        new: dict[int, tuple[int, Any]] = {}
        try:
            for host, cores in missing.items():
                if cores > 0:
                    new[host] = cores, self._reserved([host], [{"CPU": cores}], seconds)
        except ConfigError:
            self._remove([group for _, group in new.values()])
            raise
        for host, one in new.items():
            self._more.setdefault(host, []).append(one)

    def give_back(self, shares: Mapping[int, Share]) -> None:
        """See ``HostProvider``: placement groups that came later, the newest first."""
        for host, more in self._more.items():
            wanted = shares.get(host, Share(0, 0)).cores - self._shares[host].cores
            while more and sum(cores for cores, _ in more[:-1]) >= wanted:
                self._remove([more.pop()[1]])

    def _reserved(self, hosts: list[int], bundles: list[dict[str, int]], seconds: float) -> Any:
        """A placement group with a bundle on each of these hosts. Raises ConfigError where Ray does not give it."""
        from ray.util.placement_group import placement_group

        nodes = [self._nodes[host] for host in hosts]
        group = placement_group(bundles, strategy="PACK", bundle_label_selector=[{"ray.io/node-id": n} for n in nodes])
        if not self._given(group, nodes, seconds):
            self._remove([group])
            free = {k: v for k, v in self._ray.available_resources().items() if k in ("CPU", "GPU")}
            raise ConfigError(
                f"the Ray cluster has not given {bundles} within {seconds:.0f} s; of all its nodes {free} are "
                "free now. Others may use it: wait, or ask for fewer replicas."
            )
        return group

    def _remove(self, groups: list[Any]) -> None:
        from ray.util.placement_group import remove_placement_group

        for group in groups:
            with suppress(Exception):
                remove_placement_group(group)

    def _given(self, group: Any, nodes: list[str], seconds: float) -> bool:
        """Wait for a placement group, no longer than all its nodes are alive."""
        end = time.monotonic() + seconds
        while not group.wait(min(1.0, seconds)):
            alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            if time.monotonic() > end or not alive.issuperset(nodes):
                return False
        return True

    def gone(self) -> list[Gone]:
        """See ``HostProvider``."""
        found = []
        for host, watch in self._watches.items():
            if host in self._told or not self._ray.wait([watch], timeout=0)[0]:
                continue
            self._told.add(host)
            try:
                found.append(Gone(host, str(self._ray.get(watch))))
            except Exception as error:  # Ray's own: the actor or its node died
                found.append(Gone(host, _first_line(error)))
        return found

    def close(self) -> None:
        """See ``HostProvider``."""
        if self._ray is None or not self._ray.is_initialized():
            return
        ends = [actor.end.remote() for host, actor in self._actors.items() if host not in self._told]
        with suppress(Exception):
            self._ray.wait(ends, num_returns=len(ends), timeout=10.0) if ends else None
        for actor in self._actors.values():
            with suppress(Exception):
                self._ray.kill(actor)
        self._actors, self._watches = {}, {}
        self._remove([*self._groups, *(group for more in self._more.values() for _, group in more)])
        self._groups, self._more = [], {}
        if self._connected:
            self._connected = False
            self._ray.shutdown()


class _HostActor:
    """Starts a host's agent, and ends with it."""

    def __init__(self, invitation: dict[str, Any]) -> None:
        from weft.runtimes.cluster.processes import start_agent

        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's: the launcher decides for each worker
        self._agent = start_agent(Invitation(**invitation), outlives_thread=True)

    def watch(self) -> str:
        """How the agent ended; waits for it."""
        from weft.runtimes.workers.control.endings import how_it_ended

        return f"its agent {how_it_ended(self._agent.wait())}"

    def end(self) -> None:
        """Let the agent end its workers, and leave."""
        from weft.runtimes.cluster.processes import end_agents

        end_agents([self._agent])


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("on='ray' needs Ray: pip install 'weft[ray]'") from None
    return ray


def _asks_for_token() -> bool:
    """Whether Ray in this process uses a token, without which a cluster that asks for one lets nobody in."""
    try:
        from ray._private.authentication.authentication_utils import is_token_auth_enabled
    except ImportError:  # a Ray that has none
        return False
    return bool(is_token_auth_enabled())


def _check_answers(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"on={address!r}: nothing answers there: {error}. Is the cluster up, and is it its head?"
        ) from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _bundle(share: Share) -> dict[str, int]:
    return {"CPU": share.cores} | ({"GPU": share.gpus} if share.gpus else {})
