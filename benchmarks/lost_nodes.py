"""Nodes of a Ray cluster that are killed under a run, raylet and all, and replaced by new ones.

``python -m benchmarks.lost_nodes [--kills N]`` needs root and Ray. A head without cores and three nodes, each in a
network namespace of its own, train one run; a node that has workers is killed (in turn the raylet alone, and with all
that it has started), and a new one joins. Says how soon all its workers went on and learn went on, and what became of
every sample.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.checked import found
from benchmarks.namespaces import Namespaces

PLAN = "env*4 | act*2 | checker+learn"
PORT = 6391
NODES, CORES = 3, 8
LEARNS = ["--algo.unroll", "32", "--algo.epochs", "1", "--algo.minibatches", "1", "--algo.hidden", "16"]


class Nodes:
    """A Ray cluster: a head with no cores on this machine, and nodes in namespaces."""

    def __init__(self, spaces: Namespaces, folder: Path) -> None:
        self._spaces, self._folder = spaces, folder
        self.address = f"{spaces.head}:{PORT}"
        begin = ["--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard", "false"]
        self._head = self._start((), spaces.head, begin)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            self._wait_for(spaces.head)
            for host in sorted(spaces.hosts):
                self.join(host)
        except BaseException:
            self.close()
            raise

    def join(self, host: int) -> None:
        """A node on a host; waits until it is part of the cluster."""
        if host not in self._spaces.hosts:
            self._spaces.add(host)
        begin = ["--address", self.address, "--num-cpus", str(CORES)]
        self.processes[host] = self._start(self._spaces.inside(host), self._spaces.address(host), begin)
        self._wait_for(self._spaces.address(host))

    def workers(self) -> dict[int, dict[str, int]]:
        """By host, the run's workers that live there: name and process."""
        named: dict[int, dict[str, int]] = {}
        for host, process in self.processes.items():
            for pid in descendants(process.pid):
                try:
                    log = Path(os.readlink(f"/proc/{pid}/fd/1"))
                except OSError:
                    continue
                if log.parent == self._folder / "runs" / "r" / "logs" and log.stem.rpartition("-")[2].isdigit():
                    named.setdefault(host, {})[log.stem] = pid
        return named

    def kill(self, host: int, everything: bool) -> None:
        """SIGKILL of a node's raylet, and of all else that is there or not: then Ray must end it."""
        there = descendants(self.processes[host].pid)
        for pid in there:
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if everything or name == "raylet":
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        self._gone = (host, there)

    def clear(self) -> None:
        """Wait until all of the node that was killed last is gone, and remove its network."""
        host, there = self._gone
        waited(lambda: not any(alive(pid) for pid in there), "the processes of a killed node end", 60.0)
        self.processes.pop(host).wait(30.0)
        self._spaces.remove(host)

    def close(self) -> None:
        """End it."""
        for process in (*self.processes.values(), self._head):
            for pid in (*descendants(process.pid), process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            process.wait()

    def _wait_for(self, address: str) -> None:
        log = self._folder / f"ray-{address}.log"
        waited(lambda: "Ray runtime started" in log.read_text(), f"a node at {address}")

    def _start(self, where: Any, address: str, more: list[str]) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        command = [*where, ray, "start", "--node-ip-address", address, "--block", *more]
        command += ["--object-store-memory", "80000000", "--disable-usage-stats"]
        log = (self._folder / f"ray-{address}.log").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=_variables(self._folder))


def _variables(folder: Path) -> dict[str, str]:
    """For all that is started: a token that all know, the folder of ids, this checkout."""
    token = folder / "token"
    if not token.exists():
        token.write_text(secrets.token_hex(32))
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    return {**os.environ, **own, "WEFT_CHECKED": str(folder / "checked"), "PYTHONPATH": os.getcwd()}


def descendants(pid: int) -> list[int]:
    """Of a process, while they are linked to it."""
    try:
        children = [int(c) for p in Path(f"/proc/{pid}/task").iterdir() for c in (p / "children").read_text().split()]
    except OSError:
        return []
    return [d for child in children for d in (child, *descendants(child))]


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def waited(until: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
    """Wait; RuntimeError where it does not come."""
    end = time.monotonic() + seconds
    while not until():
        if time.monotonic() > end:
            raise RuntimeError(f"{seconds:.0f} s without: {what}")
        time.sleep(0.1)


def last_record(folder: Path) -> float:
    """The moment of the newest record, in the run's own seconds; -1 where there is none."""
    try:
        lines = (folder / "runs" / "r" / "metrics.jsonl").read_text().splitlines()
        return float(json.loads(lines[-1])["wall_seconds"])
    except (OSError, ValueError, IndexError):
        return -1.0


def main(arguments: list[str]) -> int:
    """1 where a sample is missing, late, or trained on twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lost_nodes", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.002, help="seconds that a step of an environment waits")
    parser.add_argument("--net", type=int, default=78, help="10.NET.0.0/24 is used")
    flags = parser.parse_args(arguments)
    os.environ["WEFT_PACE"] = str(flags.pace)
    print(machine.describe(), flush=True)
    folder, spaces = Path(tempfile.mkdtemp()), Namespaces(NODES, flags.net)
    try:
        nodes = Nodes(spaces, folder)
        try:
            return _train(nodes, folder, flags.kills)
        finally:
            nodes.close()
    finally:
        spaces.close()
        shutil.rmtree(folder, ignore_errors=True)


def _train(nodes: Nodes, folder: Path, kills: int) -> int:
    command = [sys.executable, "-m", "weft", "train", "benchmarks.checked:Checked", "benchmarks.checked:Numbered"]
    command += ["--plan", PLAN, "--on", nodes.address, "--envs", "8", "--steps", "1000000000"]
    command += ["--root", str(folder / "runs"), "--run", "r", "--no-tensorboard", "--checkpoint-seconds", "2"]
    command += ["--json", "--quiet", *LEARNS]
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        run = subprocess.Popen(command, stdout=out, stderr=err, env=_variables(folder), start_new_session=True)
        try:
            waited(lambda: last_record(folder) >= 0 or run.poll() is not None, "a first record", 240.0)
            took = [_kill_one(nodes, folder, number) for number in range(kills)]
            run.send_signal(signal.SIGINT)
            code = run.wait(60.0)
            print(f"went on after: median {median(took):.1f} s, longest {max(took):.1f} s, {sorted(took)}")
            out.seek(0)
            return _verdict(code, json.loads(out.read()), folder)
        except BaseException:
            err.seek(0)
            print(err.read()[-3000:])
            raise
        finally:
            if run.poll() is None:
                run.kill()
                run.wait()


def _kill_one(nodes: Nodes, folder: Path, number: int) -> float:
    """Kill a node that has workers, and wait until all of them and learn have gone on; the seconds."""
    choose = random.Random(number)
    host = choose.choice(sorted(nodes.workers()))
    lost = nodes.workers()[host]
    began = time.monotonic()
    nodes.kill(host, everything=number % 2 == 1)

    def elsewhere() -> bool:
        there = {name: pid for workers in nodes.workers().values() for name, pid in workers.items()}
        return all(there.get(name, pid) != pid for name, pid in lost.items())

    waited(elsewhere, f"new lives of {sorted(lost)}")
    at = last_record(folder)
    waited(lambda: last_record(folder) != at, "a record")
    seconds = round(time.monotonic() - began, 1)
    what = "the node's every process" if number % 2 else "its raylet"
    print(f"kill {number + 1}: {what}, with {', '.join(sorted(lost))}; went on after {seconds} s", flush=True)
    nodes.clear()
    nodes.join(NODES + number)
    time.sleep(2.0)
    return seconds


def _verdict(code: int, summary: dict[str, Any], folder: Path) -> int:
    samples = summary["samples"]
    missing = samples["produced"] - samples["trained"] - sum(samples["dropped"].values()) - samples["in_flight"]
    ids = found(folder / "checked")
    print(f"{summary['exit']} ({code}), {summary['restarts']} restarts, {samples}; missing from the ledger: {missing}")
    print(f"ids that learn was given: {ids}")
    return int(bool(missing or ids.late or ids.twice))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
