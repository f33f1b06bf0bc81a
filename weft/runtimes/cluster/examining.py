"""The head's side of a checkup: an agent on every host, asked for everything, and ended again."""

from __future__ import annotations

import time
from typing import Any

from weft.core.errors import ConfigError, WorkerFailed
from weft.runtimes.cluster.checkup import REACH_SECONDS, Finding, Told, judge, of_ports
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.fitness import fitness
from weft.runtimes.cluster.hosts import Share

GIVE_SECONDS = 20.0
"""How long the provider may take to give a core of each host."""

ANSWER_SECONDS = 10.0
QUESTIONS = 3
"""How often a host is asked for its time: the quickest answer tells it best."""


def examined(cluster: Cluster) -> list[Finding]:
    """What is to be said of every host, unfit or not. Takes one core of each meanwhile; starts no worker.

    Blocks until all have answered, or had their time.
    """
    silent = _start(cluster)
    found = [Finding(cluster.name(host), "agent", why, True, "See its log, and Ray's.") for host, why in silent.items()]
    ours, told = fitness(), dict[int, Told]()
    for host in cluster.alive:
        if host not in silent and (answer := _asked(cluster, host)) is not None:
            told[host] = answer
    places = {
        cluster.name(host): [cluster.offers[host].interface, one.facts["port"]]
        for host, one in told.items()
        if one.facts["port"]
    }
    for host in cluster.alive:
        if host in silent:
            continue
        name = cluster.name(host)
        found += judge(name, cluster.reported(host), ours, told.get(host))
        if host in told:
            found.append(of_ports(name, told[host], _unreached(cluster, host, places)))
    return found


def _start(cluster: Cluster) -> dict[int, str]:
    """Start agents on all hosts at once, or else one by one: those that do not come, and why."""
    hosts = [offer.host.index for offer in cluster.offers if offer.host.cores]
    try:
        return cluster.begin({host: Share(1, 0) for host in hosts}, GIVE_SECONDS, GIVE_SECONDS, every=True)
    except ConfigError:  # of some a core is not to be had now
        cluster.started -= set(hosts)
    silent: dict[int, str] = {}
    for host in hosts:
        try:
            silent |= cluster.begin({host: Share(1, 0)}, 1.0, GIVE_SECONDS)
        except ConfigError as error:
            silent[host] = str(error)
    return silent


def _asked(cluster: Cluster, host: int) -> Told | None:
    best: Told | None = None
    for _ in range(QUESTIONS):
        began, at = time.monotonic(), time.time()
        try:
            answers = cluster.ask({host: {}}, "examine", ANSWER_SECONDS)
        except WorkerFailed:
            return best
        within = (time.monotonic() - began) / 2
        if host not in answers:  # it is lost
            return best
        facts: dict[str, Any] = answers[host].body
        if best is None or within < best.within:
            best = Told(facts, facts["now"] - (at + within), within)
        best = best._replace(facts=facts)  # each time it listens on another port
    return best


def _unreached(cluster: Cluster, host: int, places: dict[str, list[Any]]) -> dict[str, str]:
    others = {name: place for name, place in places.items() if name != cluster.name(host)}
    seconds = ANSWER_SECONDS + REACH_SECONDS * len(others)
    try:
        answers = cluster.ask({host: {"places": others}}, "reach", seconds)
    except WorkerFailed as error:
        return {"all": str(error)}
    return dict(answers[host].body["wrong"]) if host in answers else {"all": cluster.lost[host]}
