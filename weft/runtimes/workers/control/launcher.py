"""Makes the channels, bells, account and processes of a blueprint; hears the processes, rings them, ends them."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from weft.core.recipe import script_path, to_recipe
from weft.runtimes.workers.control.endings import kill_group
from weft.runtimes.workers.control.link import Link, LinkClosed, LinkMessage
from weft.runtimes.workers.control.spares import Spare, SpareKind, Spares
from weft.runtimes.workers.control.variables import worker_variables
from weft.runtimes.workers.counting.account import Account, OfSide
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.services.family import Process
from weft.services.family import kill as kill_process
from weft.services.guard import Guard
from weft.streams.bell import Bell
from weft.streams.channel import ChannelSpec, Created
from weft.streams.registry import SOCKET_SCHEMES, create_together

HERE = 0
"""The host that this launcher is on, by its index in the blueprint."""

STOP_SECONDS = 3.0
"""The time that workers have to leave by themselves at the run's end."""

LOG_BYTES, LAST_LINES = 16384, 12
"""How much of a log is looked at, and told, where a worker has crashed."""

MASKED = {signal.SIGINT, signal.SIGTERM}
"""Signals that only the launcher answers; it tells its workers what to do."""


class NoRoom(Exception):
    """A worker's host is lost, and no other has room for it."""


class Heard(NamedTuple):
    """A worker sent a message; it is None when it is gone, and ``code`` its exit code.

    ``lost``: the host that it was lost with; ``last_words``: see ``Launcher.last_words``.
    """

    worker: int
    message: LinkMessage | None
    code: int | None = None
    lost: str = ""
    last_words: str = ""


@dataclass
class Child:
    """A worker's process in one of its lives."""

    process: subprocess.Popen[bytes]
    link: Link
    life: int
    family: set[Process] = field(default_factory=set)  # what it has started outside its process group

    @property
    def pid(self) -> int:
        """The process's number on this host."""
        return self.process.pid


class Launcher:
    """The processes of one run on one host. ``common`` is what every worker is told; logs go to the folder ``logs``.

    ``host`` is the host's index in the blueprint; of a run on several, ``join`` gives it the channels to other hosts.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        specs: Mapping[str, ChannelSpec],
        common: Mapping[str, Any],
        logs: Path,
        host: int = HERE,
    ) -> None:
        self.blueprint, self.logs, self.host = blueprint, logs, host
        self.warn: Callable[[str], None] = lambda text: None  # what a user should know; the pool sets it
        sizes = [len(blueprint.sides), len(blueprint.wires)]
        self.account = Account(*sizes)
        self.bells = {side.index: Bell() for side in blueprint.sides if blueprint.host_of(side.index) == host}
        self._relays: dict[str, tuple[int, ...]] = {}  # by wire: the bell of what hands its messages on to other hosts
        self.channels: dict[str, Created] = {}
        self._specs = dict(specs)
        for names in blueprint.listeners():
            asked = [specs[name] for name in names if name in specs and specs[name].scheme != "inproc"]
            for made in create_together(asked):
                self.join(made)
        self._common = {
            "script": script_path(),
            "sys_path": sys.path,
            **common,
            "account": [self.account.fd, *sizes],
        }
        self.children: dict[int, Child] = {}
        self._guard: Guard | None = None
        self._spares = Spares(self._spare)
        self._lives: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._ports: dict[frozenset[int], socket.socket] = {}

    def join(self, channel: Created, relay: Bell | None = None) -> None:
        """Give workers this channel from now on; a commit rings ``relay`` too. It is closed with the launcher."""
        name = channel.spec.name
        if name in self.channels and self.channels[name] is not channel:
            self.channels[name].close()
        self.channels[name] = channel
        self._specs[name] = channel.spec
        if relay is not None:
            self._relays[name] = relay.fds

    def rejoin(self, blueprint: Blueprint) -> None:
        """The run's workers are placed otherwise now, in part on other hosts: workers that start next are told so."""
        self.blueprint = blueprint
        for side in blueprint.sides:
            if blueprint.host_of(side.index) == self.host and side.index not in self.bells:
                self.bells[side.index] = Bell()

    def start(
        self, worker: int, more: dict[str, Any], arrays: list[np.ndarray[Any, Any]], life: int | None = None
    ) -> None:
        """Start a worker's next life; ``more`` and ``arrays`` go to it alone. Does not wait until it is ready.

        ``life``: its number, where it may have lived on another host.
        """
        part = self.blueprint.for_worker(worker)
        spec, shared = part.workers[worker], list(part.wires)
        wires = [w for w in shared if {w.writer, *w.readers} & set(spec.sides)]  # the others are slabs
        # Over a socket each side rings its own bell.
        near = {s for w in wires if w.scheme not in SOCKET_SCHEMES for s in (w.writer, *w.readers)}
        sides = (near | set(spec.sides)) & set(self.bells)
        relays = {w.name: self._relays[w.name] for w in wires if w.name in self._relays and w.writer in spec.sides}
        fds = [self.account.fd, *(fd for s in sides for fd in self.bells[s].fds)]
        fds += [fd for pair in relays.values() for fd in pair]
        fds += [fd for w in shared if w.name in self.channels for fd in self.channels[w.name].fds]
        life = self._lives.get(worker, -1) + 1 if life is None else life
        self._lives[worker] = life
        for side in spec.sides:
            self.account.sides[side][[OfSide.BEAT, OfSide.DOING]] = 0  # of the life before
        with self._open_log(spec.name) as log:
            spare = self._spares.take(self._kind(worker))
            found = spare or self._process(worker_variables(self.blueprint, worker), fds, log)
        link = found.link
        self.children[worker] = Child(found.process, link, life)
        self._selector.register(link, selectors.EVENT_READ, worker)
        task = {
            **self._common,
            **more,
            "worker": worker,
            "life": life,
            "blueprint": to_recipe(part),
            "bells": {str(s): self.bells[s].fds for s in sides},
            "relays": relays,
            "channels": {w.name: self._specs[w.name].to_json() for w in shared},
            "log": log.name if spare is not None else None,
            "not_yours": sorted(set(self._fds()) - set(fds)) if spare is not None else [],
        }
        with suppress(LinkClosed):  # killed already: ``hear`` reports it
            link.say("task", task, arrays)

    def keep_spare(self, worker: int) -> None:
        """Have a process ready that can take this worker's place, should it die again. Does not wait for it."""
        self._spares.renew(self._kind(worker))

    def _kind(self, worker: int) -> SpareKind:
        spec = self.blueprint.workers[worker]
        sides = [self.blueprint.sides[side] for side in spec.sides]
        alone = not any(side.together for side in sides)
        variables = worker_variables(self.blueprint, worker)
        return SpareKind.of(spec.loads_jax, alone, [side.role for side in sides], variables)

    def _spare(self, kind: SpareKind) -> Spare:
        with open(os.devnull, "ab") as nothing:
            return self._process(dict(kind.variables), self._fds(), nothing, kind.argument())

    def _fds(self) -> list[int]:
        """The descriptors of all workers."""
        bells = [fd for bell in self.bells.values() for fd in bell.fds]
        bells += [fd for pair in self._relays.values() for fd in pair]
        return [self.account.fd, *bells, *(fd for channel in self.channels.values() for fd in channel.fds)]

    def _process(self, variables: dict[str, str], fds: list[int], log: BinaryIO, *arguments: str) -> Spare:
        """A worker's process that waits for its task."""
        if self._guard is None:
            self._guard = Guard()
        link, theirs = Link.pair()
        # Until it handles them by itself, a worker must not be hit by signals.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, MASKED)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "weft.runtimes.workers.worker", str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno(), *fds],
                env=variables,
                start_new_session=True,  # what its environments start is in its group, and ends with it
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        theirs.close()
        self._guard.group(process.pid)
        return Spare(process, link)

    def _open_log(self, name: str) -> BinaryIO:
        """A worker's log; where it cannot be opened, nothing, which is said: a full disk must not end a run."""
        path = self.logs / f"{name}.log"
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            return path.open("ab")
        except OSError as error:
            self.warn(f"cannot open {path}: {error.strerror or error}. Worker {name} runs without a log.")
            return open(os.devnull, "ab")

    def last_words(self, worker: int) -> str:
        """What a worker that has crashed left in its log: the fault and the stacks, in lines; empty where nothing."""
        with suppress(OSError), (self.logs / f"{self.blueprint.workers[worker].name}.log").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
            _, fatal, said = log.read().decode(errors="replace").rpartition("Fatal Python error")
            fault, _, rest = (fatal + said).partition("\n")
            _, current, stack = rest.partition("Current thread")
            return "\n".join([fault, *(current + stack).partition("\n\n")[0].splitlines()[:LAST_LINES]]).strip()
        return ""

    def hear(self, timeout: float) -> list[Heard]:
        """What workers have sent, or that they are gone; waits up to ``timeout`` seconds for the first.

        A link that a child of the worker has inherited stays open when the worker dies, and is looked at as well.
        """
        heard, readable = [], [key.data for key, _ in self._selector.select(timeout)]
        silent = [worker for worker in self.children if worker not in readable]
        for worker in silent:
            if self.children[worker].process.poll() is not None and not self._has_words(worker):
                heard.append(Heard(worker, None, self._reap(worker)))
        for worker in readable:
            try:
                message = self.children[worker].link.take()
                if message is not None:  # else the rest of it is still to come
                    heard.append(Heard(worker, message))
            except LinkClosed:
                heard.append(Heard(worker, None, self._reap(worker)))
        return heard

    def catch_up(self) -> None:
        """Bring the account up to now: on one host it always is."""

    def has_words(self) -> bool:
        """Whether a worker's message is still to be heard."""
        return bool(self._selector.select(0))

    def _has_words(self, worker: int) -> bool:
        """Whether a message of a worker is still to be heard: it may have died just after it was looked at."""
        return bool(select.select([self.children[worker].link], [], [], 0)[0])

    def say(self, worker: int, topic: str, body: dict[str, Any] | None = None) -> None:
        """Say something to a worker; one that is gone does not hear it."""
        child = self.children.get(worker)
        if child is not None:
            with suppress(LinkClosed):
                child.link.say(topic, body)

    def adopt(self, worker: int, processes: list[Process]) -> None:
        """A worker has started these, and they have left its process group: they end with it all the same."""
        child = self.children.get(worker)
        if child is not None and self._guard is not None:
            child.family.update(processes)
            for process in processes:
                self._guard.process(process)

    def tell_run(self, limit: int | None = None, stop: bool = False) -> None:
        """Set words of the whole run, which are in the account that workers share, and wake every side."""
        self.account.set_run(limit, stop)
        self.ring()

    def fileno(self) -> int:
        """Readable when a worker has said something; for ``select``, on Linux."""
        return int(self._selector.fileno())

    @property
    def watched(self) -> set[int]:
        """The workers whose words of the account are as new as can be: one that shows no progress there makes none."""
        return set(self.children)

    def ring(self) -> None:
        """Wake every side."""
        for bell in self.bells.values():
            bell.ring()

    def kill(self, worker: int) -> None:
        """Kill -9, at once; ``hear`` reports that it is gone."""
        child = self.children.get(worker)
        if child is not None:
            kill_group(child.process)

    def end(self, worker: int) -> None:
        """Kill -9 and forget: nothing more is heard of this life."""
        if worker in self.children:
            self.kill(worker)
            self._reap(worker)

    def close(self) -> None:
        """End all workers, gently first; give everything back. May be called twice."""
        if self.account.fd < 0:
            return
        self.tell_run(stop=True)
        deadline = time.monotonic() + STOP_SECONDS
        for child in self.children.values():
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill_group(child.process)
        for worker in list(self.children):
            self._reap(worker)
        self._spares.close(kill_group)
        if self._guard is not None:
            self._guard.close()
        self._selector.close()
        for workers in list(self._ports):
            self._release_port(workers)
        for channel in self.channels.values():
            channel.close()
        for bell in self.bells.values():
            bell.close()
        self.account.close()

    def reserve_port(self, workers: frozenset[int], interface: str = "127.0.0.1") -> str:
        """An address for the coordinator of ``workers``, kept from others until their next is reserved.

        On loopback, unless they are on several hosts: ``interface`` is the address by which those reach this one.
        """
        self._release_port(workers)
        port = socket.socket()
        if hasattr(socket, "SO_REUSEPORT"):  # the coordinator, which is of the same user and asks for it too, may share
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port.bind((interface, 0))
        self._ports[workers] = port
        address = f"{interface}:{port.getsockname()[1]}"
        if not hasattr(socket, "SO_REUSEPORT"):
            self._release_port(workers)
        return address

    def _release_port(self, workers: frozenset[int]) -> None:
        port = self._ports.pop(workers, None)
        if port is not None:
            port.close()

    def _reap(self, worker: int) -> int:
        """Wait for a process that is going, and forget it; its exit code. What it has started ends with it."""
        child = self.children.pop(worker)
        self._selector.unregister(child.link)
        child.link.close()
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(STOP_SECONDS)
        kill_group(child.process)
        code = child.process.wait()
        for process in child.family:
            kill_process(process)
        assert self._guard is not None
        self._guard.forget(child.process.pid)
        return code
