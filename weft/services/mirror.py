"""A second home of a run: what it needs to go on, copied with each checkpoint to any place that fsspec knows.

    URL/NAME/config.json  plan.json  origin.json  metrics.jsonl  summary.json
             checkpoints/  those that the run keeps here, and no others

A machine that has no folder of the run's name begins with what is there. Nothing that comes from there is run or
unpickled: names that no run has are left alone, and checkpoints are checked as they are loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from weft.core.errors import MissingExtra, RunError
from weft.services.atomic import TEMPORARY

CONFIG = "config.json"
_FILES = ("plan.json", "origin.json", "metrics.jsonl", "summary.json", CONFIG)  # with the last of them there is a run
_CHECKPOINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.weft")
_STEP = re.compile(r"(\d{12,})\.weft")


class Mirror:
    """The copy of one run. Every method blocks while it is on the network; one thread at a time uses it."""

    def __init__(self, url: str, name: str) -> None:
        """Refuses a place that cannot be used, by writing there: RunError, or MissingExtra where fsspec is missing."""
        try:
            import fsspec
        except ModuleNotFoundError:
            raise MissingExtra(f"--mirror {url}", "fsspec", "mirror") from None
        self.url, self._name = url, name
        self._sent: dict[str, tuple[int, int]] = {}  # by name, the time and the size of what was copied
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
            self._path = f"{root.rstrip('/')}/{name}"
            self._fs.makedirs(f"{self._path}/checkpoints", exist_ok=True)
            self._fs.pipe_file(f"{self._path}/.probe", b"weft")
            self._fs.rm_file(f"{self._path}/.probe")
        except Exception as error:  # each kind of place has errors of its own
            raise RunError(
                f"--mirror {url}: cannot write there: {_words(error)}. Give a URL that fsspec can open "
                "(file:///mnt/runs, s3://bucket/runs with s3fs installed), or leave --mirror out."
            ) from error

    def fetch(self, folder: Path, *, fresh: bool = False) -> bool:
        """Bring a run here that is there and not here; whether it did. Raises RunError where the two do not fit.

        ``fresh``: a new run begins here, and so none may be there.
        """
        try:
            there = self._config()
            here = _id_of(folder / CONFIG)
            if there is None:
                return False
            if fresh:
                raise RunError(
                    f"--fresh: a run is at {self.url}/{self._name}, and is not written over. Move or remove it, train "
                    "under another name with --run, or give another --mirror."
                )
            if here is None:
                self._bring(folder)
                return True
            if here != there:
                raise RunError(
                    f"{self.url}/{self._name} is another run than {folder}. Train under another name with --run, give "
                    "another --mirror, or remove one of the two."
                )
            newest = max((_step(name) for name in self._checkpoints()), default=-1)
            own = max((_step(path.name) for path in (folder / "checkpoints").glob("*.weft")), default=-1)
        except OSError as error:
            raise RunError(f"--mirror {self.url}: cannot read it: {_words(error)}") from error
        if newest > own:
            raise RunError(
                f"{self.url}/{self._name} is further than {folder}: learn step {newest} there, {max(own, 0)} here. The "
                "run went on elsewhere. Move the folder away, and it is fetched from there."
            )
        return False

    def send(self, folder: Path) -> None:
        """Copy what is new here, remove there what was removed here. Raises whatever the place raises."""
        kept = sorted(path for path in (folder / "checkpoints").glob("*.weft") if not path.name.endswith(TEMPORARY))
        for path in (*kept, *(folder / name for name in _FILES)):
            name = path.relative_to(folder).as_posix()
            try:
                seen = path.stat()
            except FileNotFoundError:
                continue
            if self._sent.get(name) != (seen.st_mtime_ns, seen.st_size):
                self._fs.put_file(str(path), f"{self._path}/{name}")
                self._sent[name] = (seen.st_mtime_ns, seen.st_size)
        for name in set(self._checkpoints()) - {path.name for path in kept}:
            self._fs.rm_file(f"{self._path}/checkpoints/{name}")
            self._sent.pop(f"checkpoints/{name}", None)

    def tried(self, folder: Path) -> str:
        """Send; what went wrong, in words, or nothing. Training goes on either way."""
        try:
            self.send(folder)
        except Exception as error:  # each kind of place has errors of its own
            return (
                f"cannot copy to {self.url}/{self._name}: {_words(error)}. It is tried again with the next checkpoint."
            )
        return ""

    def _config(self) -> str | None:
        """The id of the run that is there; None where there is none."""
        path = f"{self._path}/{CONFIG}"
        if not self._fs.exists(path):
            return None
        return _id_in(self._fs.cat_file(path), f"{self.url}/{self._name}/{CONFIG}")

    def _checkpoints(self) -> list[str]:
        self._fs.invalidate_cache(f"{self._path}/checkpoints")
        found = self._fs.ls(f"{self._path}/checkpoints", detail=False)
        names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return [name for name in names if _CHECKPOINT.fullmatch(name)]

    def _bring(self, folder: Path) -> None:
        names = [f"checkpoints/{name}" for name in self._checkpoints()]
        names += [name for name in _FILES if self._fs.exists(f"{self._path}/{name}")]
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        for name in names:
            part = folder / f"{name}{TEMPORARY}"
            self._fs.get_file(f"{self._path}/{name}", str(part))
            part.replace(folder / name)


def _id_of(path: Path) -> str | None:
    try:
        return _id_in(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def _id_in(content: bytes, where: str) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, Any]).get("id", ""))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunError(f"{where} cannot be read as JSON: {error}. Restore it, or remove it.") from None


def _step(name: str) -> int:
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else -1


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
