"""One launcher over the workers of several hosts: what the pool knows of it is what it knows of one host's.

It places workers, has the hosts joined by channels, hands tasks to their agents, and keeps the head's copy of the
account (``words.py``).
"""

from __future__ import annotations

import os
import queue
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.delivery import Delivery
from weft.core.errors import ChannelError, ConfigError, WorkerFailed
from weft.core.recipe import script_path, to_recipe
from weft.runtimes.cluster.channels import binder, within
from weft.runtimes.cluster.cluster import Cluster
from weft.runtimes.cluster.hosts import Share
from weft.runtimes.cluster.words import Owned, begun
from weft.runtimes.workers.control.launcher import Heard, NoRoom
from weft.runtimes.workers.control.link import LinkMessage
from weft.runtimes.workers.counting.account import Account, OfRun, OfWire
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.runtimes.workers.layout.placement import crossing, move, place
from weft.streams.channel import ChannelSpec

CLOSE_SECONDS = 20.0
"""The time that agents have to end their workers."""

_runs = iter(range(1 << 62))


@dataclass
class FarChild:
    """A worker's process in one of its lives, on a host."""

    host: int
    life: int
    pid: int = 0  # it is a number of that host's, and means nothing here


class ClusterLauncher:
    """The workers of one run on several hosts; see ``Launcher``."""

    def __init__(
        self,
        cluster: Cluster,
        drafted: Blueprint,
        specs: Mapping[str, ChannelSpec],
        common: Mapping[str, Any],
        logs: Path,
    ) -> None:
        self.cluster, self.logs, self._drafted = cluster, logs, drafted
        self.warn: Callable[[str], None] = lambda text: None
        self.account = Account(len(drafted.sides), len(drafted.wires))
        self.account.copied = True
        self.children: dict[int, FarChild] = {}
        self._specs = {name: replace(spec, address="") for name, spec in specs.items()}
        self._lives: dict[int, int] = {}
        self._run = next(_runs)
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._warnings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._exports: dict[str, list[str]] = {}
        self._bound: dict[str, int] = {}
        self._adopters: dict[str, set[int]] = {}
        self._without: set[int] = set()
        self.blueprint = self._place()
        self._owned: dict[int, Owned] = {}
        self._begun = begun(self.blueprint)
        self._told: dict[tuple[int, int], list[int]] = {}  # what was told of it, from host to host
        self._common = {**common, "script": script_path(), "sys_path": sys.path}
        cluster.take = self._take
        self._began = False

    # ---- joining hosts ----------------------------------------------------------------------------------------------

    def _place(self) -> Blueprint:
        hosts = [offer.host for offer in self.cluster.offers]
        if self.cluster.started:
            hosts = [host for host in hosts if host.index in self.cluster.alive]
        placed = place(self._drafted, hosts)
        return replace(placed, hosts=tuple(offer.host for offer in self.cluster.offers))

    @property
    def _hosts(self) -> list[int]:
        """The hosts that have workers, and live."""
        return [h for h in sorted({w.host for w in self.blueprint.workers}) if h in self.cluster.alive]

    def _begin(self) -> None:
        """The first start: agents, and channels between them. What the account holds by now goes with each task."""
        self._began = True
        self.cluster.start(shares(self.blueprint))
        for host in self._hosts:
            self._begin_on(host)
        self._join_up()

    def _begin_on(self, host: int) -> None:
        specs = {
            wire.name: replace(self._specs[wire.name], scheme=wire.scheme).to_json() for wire in self.blueprint.wires
        }
        limit = int(self.account.run[OfRun.LIMIT])
        body = {"run": self._run, "blueprint": to_recipe(self.blueprint), "specs": specs, "common": self._common}
        here = within(self.blueprint, host, self._exports)
        self.cluster.say(
            host,
            "begin",
            {**body, "within": here, "logs": str(self.logs.absolute()), "limit": limit, "variables": _variables()},
        )

    def _join_up(self) -> None:
        """Have each channel between hosts bound where its binding end is, and known where the other ends are."""
        between = {wire.name: wire for wire in crossing(self.blueprint)}
        between |= {w.name: w for w in self.blueprint.wires if w.name in self._exports and w.scheme == "tcp"}
        asked: dict[int, dict[str, Any]] = {}
        for name, wire in between.items():
            host = binder(self.blueprint, wire)
            if self._bound.get(name) != host and host in self.cluster.alive:
                before = self._exports.get(name)
                asked.setdefault(host, {})[name] = None if before is None else before[1:]
        answers = self.cluster.ask({host: {"channels": names} for host, names in asked.items()}, "bind")
        new: set[str] = set()
        for host, answer in answers.items():
            for name, exported in answer.body["bound"].items():
                self._exports[name], self._bound[name] = exported, host
                new.add(name)
        for host in self._hosts:
            mine = {
                name: self._exports[name]
                for name, wire in between.items()
                if host in self.blueprint.hosts_of(wire) and self._bound.get(name, host) != host
                if name in new or host not in self._adopters.get(name, ())
            }
            for name in mine:
                self._adopters.setdefault(name, set()).add(host)
            if mine:
                self.cluster.say(host, "adopt", {"channels": mine})

    def _move(self) -> None:
        """Place the workers of lost hosts anew, and tell the others where their peers are now."""
        homeless = {w.index for w in self.blueprint.workers if w.host in self.cluster.lost} - set(self.children)
        if not homeless - self._without:
            return
        before = set(self._hosts)
        self.cluster.renew()
        self.blueprint = replace(self.blueprint, hosts=tuple(offer.host for offer in self.cluster.offers))
        while True:
            blueprint, without = move(self._drafted, self.blueprint, set(self.cluster.lost), set(self.children))
            needed = {h: s for h, s in shares(blueprint).items() if h not in self.cluster.lost}
            new = set(needed) - self.cluster.started
            try:
                self.cluster.start(needed, moving=True)
                break
            except ConfigError as error:  # a host without an agent so far, which is not to be had
                self.warn(str(error))
                self.cluster.give_up(new, str(error))
        self._without = set(without)
        self.blueprint, self._begun = blueprint, begun(blueprint)
        moved = {w for w in homeless if w not in self._without}
        for wire in blueprint.wires:  # what was within a lost host is made anew where both ends are now
            ends = {blueprint.sides[s].worker for s in (wire.writer, *wire.readers)}
            if ends <= moved and wire.delivery is Delivery.BLOCK:
                self._bound.pop(wire.name, None)
                self._exports.pop(wire.name, None)
                self._adopters.pop(wire.name, None)
        recipe = to_recipe(blueprint)
        for host in self._hosts:
            if host in before:
                here = within(blueprint, host, self._exports)
                self.cluster.say(host, "rejoin", {"blueprint": recipe, "within": here})
            else:
                self._begin_on(host)
        self._join_up()

    # ---- what the pool asks for -------------------------------------------------------------------------------------

    def start(self, worker: int, more: dict[str, Any], arrays: list[np.ndarray[Any, Any]]) -> None:
        """See ``Launcher``. Raises NoRoom where the worker's host is lost and no other has room for it.

        Of a run that is to fit its cluster (``Cluster.must_fit``) WorkerFailed: it goes over to fewer replicas.
        """
        if not self._began:
            self._begin()
        host = self.blueprint.workers[worker].host
        if host not in self.cluster.alive:
            self._move()
            host = self.blueprint.workers[worker].host
            if self.cluster.must_fit and self._without:
                names = ", ".join(self.blueprint.workers[k].name for k in sorted(self._without))
                raise WorkerFailed(f"no host has room for {names}, whose host was lost.")
            if worker in self._without or host not in self.cluster.alive:
                raise NoRoom(self.cluster.name(host))
        life = self._lives.get(worker, -1) + 1
        self._lives[worker] = life
        words = self._of(worker).read(self.account)
        self.children[worker] = FarChild(host, life)
        self.cluster.say(host, "start", {"worker": worker, "life": life, "more": more}, [words, *arrays])

    def hear(self, timeout: float) -> list[Heard]:
        """See ``Launcher``."""
        while not self._warnings.empty():
            self.warn(self._warnings.get())
        heard: list[Heard] = []
        with suppress(queue.Empty):
            heard.append(self._heard.get(timeout=timeout) if timeout else self._heard.get_nowait())
            while True:
                heard.append(self._heard.get_nowait())
        found: list[Heard] = []
        for one in heard:
            if one.message is None and self.children.pop(one.worker, None) is None:
                continue
            found.append(one)
        self.cluster.look()
        for worker, child in list(self.children.items()):
            if child.host in self.cluster.lost:
                del self.children[worker]
                name = f"{self.cluster.name(child.host)} ({self.cluster.lost[child.host]})"
                found.append(Heard(worker, None, -signal.SIGKILL, name))
        return found

    def catch_up(self) -> None:
        """See ``Launcher``: agents hand on what their workers have said by now, and their words."""
        self.cluster.ask({host: {} for host in self._hosts}, "flush")

    def has_words(self) -> bool:
        """See ``Launcher``."""
        self.catch_up()
        return not self._heard.empty()

    def say(self, worker: int, topic: str, body: dict[str, Any] | None = None) -> None:
        """See ``Launcher``."""
        child = self.children.get(worker)
        if child is not None:
            self.cluster.say(child.host, "say", {"worker": worker, "topic": topic, "body": body or {}})

    def tell_run(self, limit: int | None = None, stop: bool = False) -> None:
        """See ``Launcher``."""
        self.account.set_run(limit, stop)
        for host in self._hosts if self._began else ():
            self.cluster.say(host, "run", {"limit": limit, "stop": stop})

    def kill(self, worker: int) -> None:
        """See ``Launcher``."""
        child = self.children.get(worker)
        if child is not None:
            self.cluster.say(child.host, "kill", {"worker": worker})

    def end(self, worker: int) -> None:
        """See ``Launcher``. Waits for the host to say so, with the worker's last words of the account."""
        child = self.children.get(worker)
        if child is not None:
            answers = self.cluster.ask({child.host: {"worker": worker}}, "end")
            for answer in answers.values():
                if answer.arrays:
                    self._of(worker).write(self.account, answer.arrays[0])
            self.children.pop(worker, None)

    def keep_spare(self, worker: int) -> None:
        """See ``Launcher``."""
        child = self.children.get(worker)
        if child is not None:
            self.cluster.say(child.host, "spare", {"worker": worker})

    def last_words(self, worker: int) -> str:
        """They come with the news that it is gone."""
        return ""

    def adopt(self, worker: int, processes: Any) -> None:
        """Its host's agent has done it."""

    @property
    def watched(self) -> set[int]:
        """See ``Launcher``."""
        return {worker for worker, child in self.children.items() if not self.cluster.is_silent(child.host)}

    def reserve_port(self, workers: frozenset[int]) -> str:
        """See ``Launcher``: an address of the host of the first."""
        if not self._began:
            self._begin()
        self._move()
        host = self.blueprint.workers[min(workers)].host
        between = len({self.blueprint.workers[worker].host for worker in workers}) > 1
        answers = self.cluster.ask({host: {"workers": sorted(workers), "between": between}}, "port")
        if host not in answers:
            raise ChannelError(f"host {self.cluster.name(host)} is gone")
        return str(answers[host].body["address"])

    def close(self) -> None:
        """End all workers; the agents stay for the next set of them. May be called twice."""
        if self.account.fd < 0:
            return
        if self._began:
            try:
                answers = self.cluster.ask({host: {} for host in self.cluster.alive}, "close", CLOSE_SECONDS)
                for host, answer in answers.items():
                    self._keep_logs(host, answer.body["logs"])
            except WorkerFailed as error:  # its agent ends them by itself, when its time without us is up
                self.warn(f"{error}: its workers end without being told")
        self.cluster.take = lambda host, message: None
        self.children = {}
        self.account.close()

    def _keep_logs(self, host: int, logs: Mapping[str, str]) -> None:
        with suppress(OSError):
            for name, text in logs.items():
                self.logs.mkdir(parents=True, exist_ok=True)
                (self.logs / f"{self.cluster.name(host)}-{Path(name).name}").write_text(text)

    # ---- what agents say, in the switchboard's thread ---------------------------------------------------------------

    def _take(self, host: int, message: LinkMessage) -> None:
        body = message.body
        if body.get("run") != self._run:
            return
        match message.topic:
            case "report":
                at = 0
                for worker, life, length in body["of"]:
                    self._store(worker, life, message.arrays[0][at : at + length])
                    at += length
                self._tell_begun(host)
            case "said":
                if self._store(body["worker"], body["life"], message.arrays[0]):
                    said = LinkMessage(body["topic"], body["body"], message.arrays[1:])
                    self._heard.put(Heard(body["worker"], said))
            case "warn":
                self._warnings.put(f"host {self.cluster.name(host)}: {body['text']}")
            case "gone":
                if self._store(body["worker"], body["life"], message.arrays[0]):
                    self._heard.put(Heard(body["worker"], None, body["code"], "", body["last_words"]))

    def _store(self, worker: int, life: int, words: np.ndarray[Any, Any]) -> bool:
        """Keep a worker's words, if they are of the life that it has now; whether they are."""
        child = self.children.get(worker)
        if child is None or child.life != life:
            return False
        self._of(worker).write(self.account, words)
        return True

    def _tell_begun(self, reported: int) -> None:
        """Let other hosts know what is being built for their learners."""
        for host, wires in self._begun.get(reported, {}).items():
            versions = self.account.wires[wires, OfWire.BEGUN].tolist()
            if host in self.cluster.alive and self._told.get((reported, host)) != versions:
                self._told[reported, host] = versions
                self.cluster.say(host, "begun", {}, [np.array(wires, np.int64), np.array(versions, np.int64)])

    def _of(self, worker: int) -> Owned:
        if worker not in self._owned:
            self._owned[worker] = Owned(self._drafted, [worker])
        return self._owned[worker]


def shares(blueprint: Blueprint) -> dict[int, Share]:
    """What a placed blueprint uses of each host: a core for each worker."""
    found: dict[int, Share] = {}
    for worker in blueprint.workers:
        before = found.get(worker.host, Share(0, 0))
        found[worker.host] = Share(before.cores + 1, before.gpus + (worker.device != "cpu"))
    return found


def _variables() -> dict[str, str]:
    """What is set here of JAX and XLA, and must be the same everywhere; but not where programs run and are kept."""
    places = ("JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR")
    return {name: text for name, text in os.environ.items() if name.startswith(("JAX_", "XLA_")) and name not in places}


def launcher_of(cluster: Cluster) -> Callable[..., ClusterLauncher]:
    """What a pool makes its launcher with."""

    def make(blueprint: Blueprint, specs: Any, common: Any, logs: Path) -> ClusterLauncher:
        return ClusterLauncher(cluster, blueprint, specs, common, logs)

    return make
