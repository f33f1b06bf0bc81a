"""A host's agent: one process that starts, hears and ends the workers of its host, as the head tells it.

It has the launcher that a run on one machine has, with an account, bells and channels of this host. It hands on what
its workers say, each time with their words of the account. It ends with its standard input, with the head, and where it
has not heard from the head for a while; its workers end with it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from weft.core.recipe import from_recipe
from weft.runtimes.cluster.channels import HostChannels
from weft.runtimes.cluster.checkup import examine, reach
from weft.runtimes.cluster.fitness import fitness
from weft.runtimes.cluster.line import LEASE_SECONDS, AgentLine, Invitation
from weft.runtimes.cluster.words import Owned
from weft.runtimes.workers.control.launcher import Heard, Launcher
from weft.runtimes.workers.control.link import LinkClosed, LinkMessage
from weft.runtimes.workers.counting.account import OfWire
from weft.runtimes.workers.layout.blueprint import Blueprint
from weft.runtimes.workers.worker import die_with_parent
from weft.streams.channel import ChannelSpec

REPORT_SECONDS = 0.1
"""How often the head is told the words of the account."""

LOG_BYTES = 1 << 20
"""How much of a worker's log is sent to a head that does not share this host's files."""


class Agent:
    """Serves one head. One thread; relays have their own."""

    def __init__(self, invitation: Invitation) -> None:
        self.host, self.interface = invitation.host, invitation.interface
        self.line = AgentLine(invitation)
        self.launcher: Launcher | None = None
        self._channels: HostChannels | None = None
        self._run = -1
        self._owned: dict[int, Owned] = {}
        self._next_report = 0.0
        self._heard = time.monotonic()
        self._logs: Path | None = None  # where the head cannot see them
        self._port: socket.socket | None = None  # of a checkup: others try to reach it
        self.line.say("here", {"host": self.host, "pid": os.getpid(), **fitness()})

    def serve(self) -> None:
        """Until the head says so, or is gone."""
        poller = zmq.Poller()
        poller.register(self.line.socket, zmq.POLLIN)
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        registered: int | None = None
        while time.monotonic() - self._heard < LEASE_SECONDS:
            fd = self.launcher.fileno() if self.launcher is not None else None
            if fd != registered:
                if registered is not None:
                    poller.unregister(registered)
                if fd is not None:
                    poller.register(fd, zmq.POLLIN)
                registered = fd
            ready = dict(poller.poll(int(REPORT_SECONDS * 1000)))
            if sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 4096):
                return
            while (message := self.line.hear()) is not None:
                self._heard = time.monotonic()
                if message.topic == "leave":
                    return
                self._heed(message)
            self.line.flush()
            self._hear_workers()
            if time.monotonic() > self._next_report:
                self._report()
            if self._channels is not None and self._channels.failed:
                raise RuntimeError(self._channels.failed)

    def close(self) -> None:
        """End all workers."""
        self._end_run()
        self._forget_port()
        self.line.close()
        if self._logs is not None:
            shutil.rmtree(self._logs, ignore_errors=True)

    # ---- what the head says -----------------------------------------------------------------------------------------

    def _heed(self, message: LinkMessage) -> None:
        body = message.body
        if self.launcher is None and message.topic not in ("begin", "flush", "close", "examine", "reach"):
            return  # said before the head heard that its workers are gone
        match message.topic:
            case "begin":
                self._begin(body)
            case "bind":
                self._answer(body, {"bound": self._made.bind(body["channels"])})
            case "adopt":
                for worker, name, place in self._made.adopt(body["channels"]):
                    self._there.say(worker, "repoint", {"wire": name, "place": place})
            case "rejoin":
                blueprint = from_recipe(body["blueprint"])
                self._there.rejoin(blueprint)
                self._made.rejoin(blueprint, body["within"])
                self._owned = {}
            case "start":
                worker = body["worker"]
                self._of(worker).write(self._there.account, message.arrays[0])
                self._there.start(worker, body["more"], message.arrays[1:], body["life"])
            case "say":
                self._there.say(body["worker"], body["topic"], body["body"])
            case "kill":
                self._there.kill(body["worker"])
            case "end":
                words = []
                if body["worker"] in self._there.children:
                    self._there.end(body["worker"])
                    words = [self._of(body["worker"]).read(self._there.account)]
                self._answer(body, {}, words)
            case "spare":
                self._there.keep_spare(body["worker"])
            case "run":
                self._there.tell_run(body["limit"], body["stop"])
            case "begun":
                wires, versions = message.arrays
                self._there.account.wires[wires, OfWire.BEGUN] = versions
            case "port":
                interface = self.interface if body["between"] else "127.0.0.1"
                self._answer(body, {"address": self._there.reserve_port(frozenset(body["workers"]), interface)})
            case "flush":
                if self.launcher is not None:
                    while self._hear_workers():
                        pass
                    self._report()
                self._answer(body, {})
            case "examine":
                self._forget_port()
                facts, self._port = examine(self.interface)
                self._answer(body, facts)
            case "reach":
                self._answer(body, {"wrong": reach(body["places"])})
            case "close":
                self._end_run()
                self._answer(body, {"logs": self._read_logs()})

    def _begin(self, body: dict[str, Any]) -> None:
        """A new set of workers, in place of any that there is."""
        self._end_run()
        os.environ.update(body["variables"])
        sys.path[:] = [*(p for p in body["common"]["sys_path"] if os.path.isdir(p) and p not in sys.path), *sys.path]
        blueprint: Blueprint = from_recipe(body["blueprint"])
        specs = {name: ChannelSpec.from_json(saved) for name, saved in body["specs"].items()}
        logs = Path(body["logs"])
        if not logs.parent.is_dir():  # the head's files are not here
            with suppress(OSError):  # a full disk: then of each worker is said that it has no log
                self._logs = logs = Path(tempfile.mkdtemp(prefix="weft-logs-"))
        _know_roles(blueprint, body["common"])
        mine = {name: replace(specs[name], compress=False) for name in body["within"]}
        self.launcher = Launcher(
            blueprint, mine, {**body["common"], "sys_path": sys.path, "interface": self.interface}, logs, self.host
        )
        self.launcher.warn = lambda text: self.line.say("warn", {"run": self._run, "text": text})
        self.launcher.account.set_run(limit=body["limit"])
        self._channels = HostChannels(self.launcher, blueprint, specs, self.host, self.interface)
        self._run, self._owned = body["run"], {}

    def _end_run(self) -> None:
        if self.launcher is not None:
            self.launcher.close()
        if self._channels is not None:
            self._channels.close()
        self.launcher = self._channels = None

    def _forget_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    @property
    def _there(self) -> Launcher:
        assert self.launcher is not None, "the head begins with 'begin'"
        return self.launcher

    @property
    def _made(self) -> HostChannels:
        assert self._channels is not None, "the head begins with 'begin'"
        return self._channels

    def _of(self, worker: int) -> Owned:
        if worker not in self._owned:
            self._owned[worker] = Owned(self._there.blueprint, [worker])
        return self._owned[worker]

    # ---- what workers say -------------------------------------------------------------------------------------------

    def _hear_workers(self) -> bool:
        """Hand on what workers have said; whether there was anything."""
        if self.launcher is None:
            return False
        lives = {worker: child.life for worker, child in self.launcher.children.items()}
        heard = self.launcher.hear(0)
        for one in heard:
            self._hand_on(one, lives[one.worker])
        return bool(heard)

    def _hand_on(self, heard: Heard, life: int) -> None:
        launcher, worker = self._there, heard.worker
        whose = {"run": self._run, "worker": worker, "life": life}
        words = self._of(worker).read(launcher.account)
        message = heard.message
        if message is None:
            last = launcher.last_words(worker)
            self.line.say("gone", {**whose, "code": heard.code, "last_words": last}, [words])
        elif message.topic == "family":
            launcher.adopt(worker, [(pid, began) for pid, began in message.body["processes"]])
        else:
            said = {**whose, "topic": message.topic, "body": message.body}
            self.line.say("said", said, [words, *message.arrays])

    def _report(self) -> None:
        """The words of all workers that live. With very many it takes a tenth of the agent's time at most."""
        began = time.monotonic()
        self._next_report = began + REPORT_SECONDS
        if self.launcher is None:
            self.line.say("idle")
            return
        children = self.launcher.children
        words = [self._of(worker).read(self.launcher.account) for worker in children]
        of = [[worker, children[worker].life, len(each)] for worker, each in zip(children, words, strict=True)]
        everything = np.concatenate(words) if words else np.zeros(0, np.int64)
        self.line.say("report", {"run": self._run, "of": of}, [everything])
        self._next_report = max(self._next_report, began + 10.0 * (time.monotonic() - began))

    def _answer(self, asked: dict[str, Any], body: dict[str, Any], arrays: Any = ()) -> None:
        self.line.say("answer", {"id": asked["id"], **body}, arrays)

    def _read_logs(self) -> dict[str, str]:
        """The ends of the logs, where the head does not see them by itself."""
        if self._logs is None:
            return {}
        found = {}
        for path in sorted(self._logs.glob("*.log")):
            data = path.read_bytes()[-LOG_BYTES:]
            found[path.name] = data.decode(errors="replace")
        return found


def _know_roles(blueprint: Blueprint, common: dict[str, Any]) -> None:
    """Roles of the user's are registered where their module is imported: only then is it."""
    from weft.core.errors import UnknownName
    from weft.core.recipe import import_script
    from weft.graph.role import role

    try:
        for side in blueprint.sides:
            role(side.role)
    except UnknownName:
        if common["script"]:
            import_script(common["script"])
        from_recipe(common["algorithm"])


def main(outlives_thread: bool = False) -> None:
    """Read the invitation from standard input, and serve. Leaves with 1 where something broke."""
    if not outlives_thread:
        die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the head answers them
    line = b""
    while not line.endswith(b"\n"):
        select.select([0], [], [])
        got = os.read(0, 65536)
        if not got:
            sys.exit(1)
        line += got
    agent = Agent(Invitation(**json.loads(line)))
    code = 0
    try:
        agent.serve()
    except LinkClosed as error:
        print(f"weft: the line to the head broke: {error}", file=sys.stderr)
        code = 1
    except Exception as error:
        traceback.print_exc()
        agent.line.say("broke", {"why": f"its agent met {error!r}"})
        code = 1
    finally:
        agent.close()
    sys.exit(code)
