"""One run as its folder tells of it, read again as it changes."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.dashboard.files import JsonFile, listing, opened
from weft.dashboard.records import Records
from weft.telemetry.live import FORMAT

STALE_SECONDS = 15.0
"""A run that writes ``live.json`` no more for so long, and whose lock nobody holds, is gone."""

VIDEOS = {".gif": "image/gif", ".mp4": "video/mp4", ".webm": "video/webm", ".png": "image/png"}
LOG_BYTES = 256 * 1024
"""Of a log, what is given at a time."""


class RunView:
    """A run's folder. ``id`` is made of its path: what a browser names it by, so that no path comes from there."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.id = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
        self.records = Records(path / "metrics.jsonl")
        self._files = {n: JsonFile(path / f"{n}.json") for n in ("config", "plan", "summary", "live", "lineage")}
        self._payoffs = JsonFile(path / "payoffs.json")

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for."""
        return self._files["config"].read()

    @property
    def plan(self) -> dict[str, Any]:
        """How the last execution was laid out."""
        return self._files["plan"].read()

    @property
    def summary(self) -> dict[str, Any]:
        """How the last execution ended; empty where none has."""
        return self._files["summary"].read()

    @property
    def live(self) -> dict[str, Any]:
        """How it stands; empty where the run writes none, or one that this version does not know."""
        live = self._files["live"].read()
        return live if live.get("format") == FORMAT else {}

    @property
    def lineage(self) -> dict[str, Any]:
        """Of a population: which member copied which."""
        return self._files["lineage"].read()

    @property
    def payoffs(self) -> dict[str, Any]:
        """Of self-play: what ``weft league`` found."""
        return self._payoffs.read()

    @property
    def problems(self) -> list[str]:
        """What could not be read of the folder, in words."""
        files = {f"{n}.json": file for n, file in self._files.items()} | {"payoffs.json": self._payoffs}
        return [f"{name} cannot be read: {file.problem}" for name, file in files.items() if file.problem]

    def state(self, locked: frozenset[int], now: float | None = None) -> str:
        """``training``, ``starting``, ``finished``, ``interrupted``, ``failed``, ``stopped`` or ``gone``.

        ``locked`` are the inodes of files that processes of this machine hold locks on. A run of another machine is
        known to be alive by its ``live.json``.
        """
        live, summary = self.live, self.summary
        written = number(live.get("at"))
        alive = self._lock_inode() in locked
        if live.get("training") is True and (alive or (time.time() if now is None else now) - written < STALE_SECONDS):
            return "training"
        if alive and not (live.get("training") is False and self._files["summary"].changed_at >= written - 60):
            return "starting"
        ended = summary.get("exit")
        if isinstance(ended, str) and not (live.get("training") is True and written > self._ended_at()):
            return ended if ended in ("finished", "interrupted", "failed", "stopped") else "gone"
        return "gone"

    def _ended_at(self) -> float:
        return self._files["summary"].changed_at

    def _lock_inode(self) -> int:
        with suppress(OSError):
            return os.stat(self.path / ".lock", follow_symlinks=False).st_ino
        return -1

    def record(self) -> dict[str, Any]:
        """The newest record: of ``live.json``, else of the summary."""
        found = self.live.get("record")
        if isinstance(found, Mapping) and found:
            return dict(found)
        names = ("env_steps", "learn_steps", "wall_seconds", "env_steps_per_second", "episodes", "return_mean")
        return {name: self.summary[name] for name in names if name in self.summary}

    def total_steps(self) -> float:
        """The env steps that it will have made at its end, of all seeds; 0 where that is not known."""
        told = number(self.live.get("total_steps"))
        return told or number(self.config.get("steps")) * max(1.0, number(self.config.get("seeds")))

    def overview(self, locked: frozenset[int]) -> dict[str, Any]:
        """What the list of runs says of it."""
        config, record = self.config, self.record()
        named = config.get("algorithm", self.summary.get("algorithm"))
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state(locked),
            "algorithm": text(named),
            "environment": text(config.get("environment")),
            "plan": text(config.get("plan")),
            "seed": config.get("seed") if isinstance(config.get("seed"), int) else None,
            "env_steps": number(record.get("env_steps")),
            "total_steps": self.total_steps(),
            "return_mean": number_or_none(record.get("return_mean")),
            "env_steps_per_second": number_or_none(record.get("env_steps_per_second")),
            "restarts": number(self.live.get("restarts", self.summary.get("restarts"))),
            "changed_at": max(file.changed_at for file in self._files.values()),
            "population": "population" in config,
        }

    def logs(self) -> list[str]:
        """The names of its logs, those with something in them first."""
        folder = self.path / "logs"
        return sorted(listing(folder, (".log",)), key=lambda name: _is_empty(folder / name))

    def log(self, name: str, after: int | None) -> dict[str, Any] | None:
        """A part of a log from byte ``after`` on, else its end; None where there is no such log."""
        if name not in self.logs():
            return None
        with suppress(OSError), opened(self.path / "logs" / name) as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - LOG_BYTES) if after is None or not 0 <= after <= size else after
            content = os.pread(file.fileno(), LOG_BYTES, begin)
            return {
                "text": content.decode(errors="replace"),
                "begin": begin,
                "next": begin + len(content),
                "size": size,
            }
        return None

    def videos(self) -> list[str]:
        """The names of its videos, the newest last."""
        names = listing(self.path / "videos", tuple(VIDEOS))
        return sorted(names, key=lambda name: [int(p) if p.isdigit() else -1 for p in Path(name).stem.split("-")])

    def video(self, name: str) -> tuple[Path, str] | None:
        """The file of a video and its type; None where there is none of that name."""
        return (self.path / "videos" / name, VIDEOS[Path(name).suffix]) if name in self.videos() else None


def _is_empty(path: Path) -> bool:
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_size == 0
    return True


def number(value: Any) -> float:
    """A finite number, 0 where it is none."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else 0.0


def number_or_none(value: Any) -> float | None:
    """A finite number, or None."""
    return number(value) if isinstance(value, int | float) and value == value else None


def text(value: Any, most: int = 300) -> str:
    """A few words; empty where it is no text. An environment that is given as code has a dict in the config."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("make") or ""
    return value[:most] if isinstance(value, str) else ""
