"""The runs that are watched: those named, or all that are in the folder of runs."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.core.errors import UnknownName
from weft.dashboard.run_view import RunView
from weft.services.config_json import to_json

SCAN_SECONDS = 1.0
"""How often the folder is looked through for new runs, at most."""

KEPT_BYTES = 1 * 2**30
"""Of records that are held in memory; what was not asked for longest is dropped first, and read again when it is."""

MEMBERS = "member-"


class Library:
    """Runs under ``root``, or those of ``names`` (names under ``root``, or folders). Any thread may use it.

    Raises UnknownName where one of ``names`` is no run. Without names, runs that appear later are found.
    """

    def __init__(self, root: Path, names: tuple[str, ...] = ()) -> None:
        self.root, self.names = root, names
        self._runs: dict[str, RunView] = {}
        self._scanned = float("-inf")
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()
        self._named: list[Path] = [self._find(name) for name in names]

    def _find(self, name: str) -> Path:
        for path in (self.root / name, Path(name)):
            if (path / "config.json").is_file():
                return path
        known = [path.parent.name for path in self.root.glob("*/config.json")]
        raise UnknownName("run", name, known, hint=f"Runs are looked for in {self.root}.")

    def named(self) -> list[tuple[Path, str]]:
        """The folders of the runs that were named, in that order, each with what it is called."""
        return [(path, path.resolve().name) for path in self._named]

    def runs(self) -> list[RunView]:
        """All runs, by name; members of a population after it."""
        with self._lock:
            if time.monotonic() - self._scanned >= SCAN_SECONDS:
                self._scan()
                self._scanned = time.monotonic()
            return list(self._runs.values())

    def run(self, run_id: str) -> RunView | None:
        """The run of an id; None where there is none."""
        self.runs()
        with self._lock:
            found = self._runs.get(run_id)
            if found is not None:
                self._used[run_id] = time.monotonic()
                self._drop_least_used(found)
            return found

    def locked(self) -> frozenset[int]:
        """The inodes that processes of this machine hold locks on, as Linux tells; empty elsewhere."""
        with suppress(OSError), open("/proc/locks", encoding="ascii") as lines:
            fields = (line.split() for line in lines)
            return frozenset(int(f[-3].rpartition(":")[2]) for f in fields if len(f) >= 8 and f[1] != "->")
        return frozenset()

    def overviews(self) -> list[dict[str, Any]]:
        """What the list of runs shows, JSON."""
        locked = self.locked()
        return [run.overview(locked) for run in self.runs()]

    def _scan(self) -> None:
        folders = self._named or _folders(self.root)
        found: dict[str, RunView] = {}
        for folder in folders:
            for path, name in [(folder, folder.name), *((m, f"{folder.name}/{m.name}") for m in _members(folder))]:
                view = RunView(path, name)
                found[view.id] = self._runs.get(view.id, view)
        self._runs = found

    def _drop_least_used(self, but: RunView) -> None:
        held = sum(run.records.nbytes for run in self._runs.values())
        for run_id in sorted(self._runs, key=lambda k: self._used.get(k, 0.0)):
            if held <= KEPT_BYTES:
                return
            run = self._runs[run_id]
            if run is not but and run.records.nbytes:
                held -= run.records.nbytes
                self._runs[run_id] = RunView(run.path, run.name)


def _folders(root: Path) -> list[Path]:
    """Folders that hold a run, by name."""
    with suppress(OSError), os.scandir(root) as entries:
        folders = [Path(e.path) for e in entries if e.is_dir() and not e.name.startswith(".")]
        return sorted(f for f in folders if (f / "config.json").is_file())
    return []


def _members(folder: Path) -> list[Path]:
    """The members of a population: runs of their own in its folder."""
    if not (folder / "lineage.json").exists():
        return []
    return [path for path in _folders(folder) if path.name.startswith(MEMBERS) and not path.is_symlink()]


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config field by field, with dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def compare(runs: list[RunView]) -> dict[str, Any]:
    """What differs in the configs of runs: ``fields``, each with a value for every run; None where it has none.

    A run's id is left out: it always differs.
    """
    configs = [flat(to_json(run.config)) for run in runs]
    names = sorted({name for config in configs for name in config} - {"id"})
    rows = []
    for name in names:
        values = [config.get(name) for config in configs]
        if any(type(v) is not type(values[0]) or v != values[0] for v in values):
            rows.append({"field": name, "values": values})
    same = [name for name in names if name not in {row["field"] for row in rows}]
    return {"runs": [{"id": run.id, "name": run.name} for run in runs], "fields": rows, "same": len(same)}
