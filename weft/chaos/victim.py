"""``weft train`` as a process of its own that suffers faults: its workers, its records, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")
START_SECONDS = 300.0
END_SECONDS = 60.0
TAIL_BYTES = 32768


class Victim:
    """A run in a session of its own; ``arguments`` are ``weft train``'s. ``close`` kills whatever is left of it."""

    def __init__(self, root: Path, name: str, arguments: list[str]) -> None:
        self.folder, self._shared = root / name, _shared_names()
        command = [sys.executable, "-m", "weft", "train", *arguments]
        self._command = [*command, "--root", str(root), "--run", name, "--json", "--quiet", "--no-tensorboard"]
        self._out, self._err = root / f"{name}.out", root / f"{name}.err"
        self.seen: dict[int, str] = {}  # every process of the run that was ever found, by what it was
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # Into files: a pipe that nobody reads would stop it.
        with self._out.open("wb") as out, self._err.open("ab") as err:
            process = subprocess.Popen(self._command, stdout=out, stderr=err, start_new_session=True)
        self.seen[process.pid] = "the launcher"
        return process

    def again(self) -> None:
        """Start the same command again: it goes on with the run."""
        self.process = self._start()

    def workers(self) -> dict[str, int]:
        """Process ids of the workers that live, by name: each writes to a log of its name."""
        found = {}
        for child in _children(self.process.pid):
            try:
                log = Path(os.readlink(f"/proc/{child}/fd/1"))
            except OSError:
                continue
            if log.suffix == ".log":
                found[log.stem] = child
        self.seen.update({pid: name for name, pid in found.items()})
        return found

    @property
    def learned_at(self) -> float:
        """When it last learned, in seconds since the run began, as its last record says; -1 before the first.

        Reads the end of the file alone: this is asked often, while the run wants the machine for itself.
        """
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return -1.0
        for line in reversed(lines):
            try:
                return float(json.loads(line)["wall_seconds"])
            except (ValueError, KeyError, TypeError):  # the last one is being written
                continue
        return -1.0

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def wait_for_learning(self) -> bool:
        """Wait for the first record; False where the run ends before that, or time is up."""
        began = time.monotonic()
        while self.learned_at < 0:
            if self.ended or time.monotonic() - began > START_SECONDS:
                return False
            time.sleep(0.05)
        return True

    def end(self) -> int | None:
        """Interrupt it as Ctrl-C does; its exit code, or None where it does not end."""
        self.workers()
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    @property
    def summary(self) -> dict[str, Any] | None:
        """What it printed at its end; None where it did not."""
        try:
            found: dict[str, Any] = json.loads(self._out.read_text())
        except (OSError, ValueError):
            return None
        return found

    @property
    def said(self) -> str:
        """What it said on stderr."""
        return self._err.read_text(errors="replace") if self._err.exists() else ""

    def leaks(self) -> list[str]:
        """Processes that live although the run has ended, and names in shared memory that were not there before."""
        alive = [f"process {name} ({pid})" for pid, name in self.seen.items() if _alive(pid)]
        return alive + [f"shared memory {name}" for name in sorted(_shared_names() - self._shared)]

    def close(self) -> None:
        """Kill what is left."""
        self.workers()
        for pid in self.seen:
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _alive(pid: int) -> bool:
    """Whether the process lives and is still one of ours, and not another that was given its number."""
    try:
        stat, command = Path(f"/proc/{pid}/stat").read_text(), Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"weft" in command and stat.rpartition(")")[2].split()[0] != "Z"


def _shared_names() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.glob("*weft*")} if SHARED_MEMORY.exists() else set()
