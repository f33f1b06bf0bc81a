"""The schedule of ``benchmarks.chaos`` against other libraries: ``python -m benchmarks.chaos_peers [--seconds 600]``.

A peer trains in processes of its own; at the same moments as Weft's workers one of them, drawn at random, is killed.
Prints what became of it: samples trained on, with kills and without, and how long it trained on nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine, peers, sample_factory_worker
from weft.chaos.schedule import kinds_of, schedule

SIZES = {"environment": "CartPole-v1", "envs": 32, "unroll": 32, "batch": 2048}
READY_SECONDS = 180.0
ENDS = 60.0  # seconds without a trained sample after which nothing more is expected


class Told(NamedTuple):
    """A line of the peer's: after a batch."""

    at: float  # seconds, monotonic
    trained: int


class Peer:
    """A peer's training; ``close`` kills whatever is left of it."""

    def __init__(self, name: str, root: Path) -> None:
        python = peers.python_of(name)
        assert python is not None
        self.told: list[Told] = []
        self.said = root / f"{name}.txt"
        if name == "rllib":
            asked = {"kind": "impala", "runners": 2, "learners": 1, **SIZES}
            command = [str(python), "-m", "benchmarks.rllib_worker", "train", json.dumps(asked)]
        else:
            flags = sample_factory_worker.flags_of(workers=2, **SIZES)
            command = [str(python), "-m", "benchmarks.sample_factory_worker", "train", *flags, "--train_dir", str(root)]
        with self.said.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def trained(self) -> int:
        """Samples so far; what a restart takes back is not taken back here."""
        return self.told[-1].trained if self.told else 0

    def workers(self) -> dict[int, str]:
        """The processes that step, infer or learn, by what they call themselves."""
        found = {}
        for pid in _below(self.process.pid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words.startswith("ray::") and "IDLE" not in words:
                found[pid] = words.split()[0].removeprefix("ray::").partition(".")[0]
            elif "multiprocessing" in words and "spawn_main" in words:
                found[pid] = "process"
        return found

    def close(self) -> None:
        """Kill all of it."""
        for pid in [*_below(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            self.told.append(Told(told["at"], told["trained"]))


def _below(pid: int) -> list[int]:
    """The processes that descend from one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found, level = [], {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += level
    return found


def suffer(peer: Peer, moments: list[float], seconds: float, seed: int) -> str:
    """Train for ``seconds`` with a kill at each of ``moments``; what became of it, in words."""
    draw, began, kills = random.Random(seed), time.monotonic(), []
    first = peer.trained
    while time.monotonic() - began < seconds and peer.process.poll() is None:
        now = time.monotonic()
        if len(kills) < len(moments) and now - began >= moments[len(kills)] and (there := peer.workers()):
            pid = draw.choice(sorted(there))
            os.kill(pid, signal.SIGKILL)
            kills.append((now, there[pid]))
            print(f"{now - began:6.1f} s  killed {there[pid]}; trained {peer.trained:,}", file=sys.stderr, flush=True)
        if now - peer.told[-1].at > ENDS:
            break
        time.sleep(0.05)
    took, trained = min(seconds, time.monotonic() - began), peer.trained - first
    last = peer.told[-1].at - began
    rate = f"{trained / seconds:,.0f} samples/s of the {seconds:.0f} s"
    if peer.process.poll() is not None:
        said = [line for line in peer.said.read_text(errors="replace").splitlines() if line.strip()][-1:]
        code = peer.process.returncode
        return f"ended by itself (exit code {code}: {said}) after {took:.0f} s, {len(kills)} kills; {rate}"
    if took < seconds:
        return f"trained on nothing more after {last:.0f} s, {sum(at - began <= last for at, _ in kills)} kills; {rate}"
    return f"trained to the end, {len(kills)} kills; {rate}"


def measure(name: str, moments: list[float], seconds: float, seed: int) -> str:
    """Start a peer, wait until it trains, and let it suffer."""
    with tempfile.TemporaryDirectory() as root:
        peer = Peer(name, Path(root))
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not peer.trained:
                if peer.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{name} does not train:\n{peer.said.read_text()[-2000:]}")
                time.sleep(0.1)
            return suffer(peer, moments, seconds, seed)
        finally:
            peer.close()


def main(arguments: list[str]) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos_peers", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long each trains under kills (600)")
    parser.add_argument("--calm", type=float, default=60.0, help="how long each trains without (60)")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two kills, on average (15)")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule (0)")
    parser.add_argument("--peers", nargs="+", default=["rllib", "sample-factory"])
    flags = parser.parse_args(arguments)
    print("\n".join(f"{key}: {value}" for key, value in machine.describe().items()))
    moments = [fault.at for fault in schedule(kinds_of("kill"), flags.every, flags.seconds, flags.seed)]
    for name in flags.peers:
        if peers.python_of(name) is None:
            print(peers.how_to_install(name))
            continue
        print(f"{name}, no kills: {measure(name, [], flags.calm, flags.seed)}", flush=True)
        print(f"{name}, {len(moments)} kills planned: {measure(name, moments, flags.seconds, flags.seed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
