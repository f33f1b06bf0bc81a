"""``weft train`` as a process of its own, whose workers can be found and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")


class Training:
    """A command that trains, in a session of its own. ``close`` kills whatever is left of it."""

    def __init__(self, root: Path, *arguments: str, run: str = "r", cwd: Path | None = None) -> None:
        self.folder = root / run
        self.shared_before = _entries()
        command = [sys.executable, "-m", "weft", "train", *arguments]
        command += ["--root", str(root), "--run", run, "--json", "--no-tensorboard"]
        # Into files: a pipe that nobody reads would stop it.
        self._out, self._err = (root / f"{run}.out").open("w+"), (root / f"{run}.err").open("w+")
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._err, cwd=cwd, start_new_session=True)
        self.began = time.monotonic()
        self.seen: dict[int, str] = {}  # every worker's process that was ever found

    def workers(self) -> dict[str, int]:
        """Process ids of the workers that live, by name."""
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except OSError:
            return {}
        found = {}
        for child in children:
            try:
                log = Path(os.readlink(f"/proc/{child}/fd/1"))
            except OSError:
                continue
            if log.suffix == ".log":
                found[log.stem] = int(child)
        self.seen.update({pid: name for name, pid in found.items()})
        return found

    def has_loaded(self, name: str, library: str) -> bool:
        """Whether a worker that lives has a library of this name in its memory."""
        return library in Path(f"/proc/{self.workers()[name]}/maps").read_text()

    def records(self) -> list[dict[str, Any]]:
        """What the run has logged so far."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except ValueError:  # the last one is being written
                break
        return records

    @property
    def steps(self) -> int:
        """Environment steps trained on so far."""
        records = self.records()
        return int(records[-1]["env_steps"]) if records else 0

    def logged_since(self, wall_seconds: float) -> int:
        """How many records were made later than that: after a learner's death older ones are taken back."""
        return sum(record["wall_seconds"] > wall_seconds for record in self.records())

    def wait(self, until: Callable[[], Any], seconds: float = 90.0, what: str = "") -> float:
        """Wait until something is so, and how long that took; fails if the run ends before or time is up."""
        began = time.monotonic()
        while not until():
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended ({self.process.returncode}) before {what}:\n{self.err}")
            if time.monotonic() - began > seconds:
                raise AssertionError(f"{seconds} s without {what}:\n{self.err}")
            time.sleep(0.02)
        return time.monotonic() - began

    def wait_for_learning(self, more: int = 1, seconds: float = 90.0) -> float:
        """Wait for ``more`` records to come."""
        records = self.records()
        before = float(records[-1]["wall_seconds"]) if records else -1.0
        steps = self.steps
        return self.wait(lambda: self.logged_since(before) >= more, seconds, f"learning more than {steps} steps")

    def wait_for_checkpoint(self) -> None:
        """Wait until something is saved."""
        folder = self.folder / "checkpoints"
        self.wait(lambda: folder.exists() and any(folder.iterdir()), what="a checkpoint")

    def kill(self, name: str, signal_: signal.Signals = signal.SIGKILL) -> int:
        """Kill a worker, as soon as it lives; the process that it was."""
        self.wait(lambda: name in self.workers(), what=f"a worker {name}")
        pid = self.workers()[name]
        os.kill(pid, signal_)
        return pid

    def wait_for_another(self, name: str, instead: int, seconds: float = 30.0) -> float:
        """Wait until a worker has been replaced by another process."""
        return self.wait(lambda: self.workers().get(name, instead) != instead, seconds, f"another {name}")

    def end(self, signal_: signal.Signals | None = None, seconds: float = 60.0) -> int:
        """Wait for its end, after a signal if one is given; its exit code."""
        if signal_ is not None:
            self.workers()
            self.process.send_signal(signal_)
        return self.process.wait(seconds)

    @property
    def summary(self) -> dict[str, Any]:
        """What it printed at its end."""
        self._out.seek(0)
        found: dict[str, Any] = json.loads(self._out.read())
        return found

    @property
    def err(self) -> str:
        """What it has said on stderr so far."""
        self._err.seek(0)
        return self._err.read()

    def left(self) -> list[str]:
        """Workers that live although the run has ended, and names in shared memory that were not there before."""
        alive = [name for pid, name in self.seen.items() if _alive(pid)]
        return alive + sorted(_entries() - self.shared_before)

    def close(self) -> None:
        """Kill what is left, and forget it."""
        self.workers()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in self.seen:
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        self._out.close()
        self._err.close()


def missing(samples: dict[str, Any]) -> int:
    """How many samples of a summary are unaccounted for: 0 if the ledger balances."""
    dropped: Iterable[int] = samples["dropped"].values()
    return int(samples["produced"] - samples["trained"] - sum(dropped) - samples["in_flight"])


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"weft.runtimes.workers.worker" in command and stat.rpartition(")")[2].split()[0] != "Z"


def _entries() -> set[str]:
    """Our names in shared memory."""
    return {entry.name for entry in SHARED_MEMORY.glob("*weft*")}
