"""The folder of a run: what it was asked to do, how it went, and what it needs to go on.

    runs/NAME/config.json       what was asked; the same again resumes the run; and the run's id
              plan.json         how the run is laid out, or was last
              metrics.jsonl     one record a line
              origin.json       where its code came from, to open it again, and the mark of the user that made it
              summary.json      how it ended
              checkpoints/  tensorboard/  videos/  logs/

One process at a time: the kernel holds the lock, and lets go of it when the process ends in whatever way.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from weft.core.errors import RunError, UnknownName
from weft.services.atomic import TEMPORARY, write_atomic
from weft.services.config_json import Difference, differences, to_json
from weft.services.made_here import MARK, with_mark
from weft.services.numbered import numbered, set_aside

BEST = "best"
"""The name, in a population's folder, that leads to its best member: a run like any other."""

_FOLDERS = ("checkpoints", "tensorboard", "videos")
LOCK = ".lock"
PLAN = "plan.json"
_ID = "id"
_ORIGIN: dict[str, type] = {"modules": dict, "objects": dict, "script": str, MARK: str}


@dataclass(frozen=True)
class RunFolder:
    """An open run folder. Close it, or use it as a context manager, to let another process have it.

    ``resumed`` says that it was there before, with the same config. ``lock`` is None for a reader, who may write
    nothing. ``config`` is what was asked for now; the folder of a resumed run says so only after ``begin``. ``id`` is
    random and made with the run: its checkpoints carry it. It is empty for a run from before there were ids.
    """

    path: Path
    config: Mapping[str, Any]
    resumed: bool = False
    id: str = ""
    lock: int | None = field(default=None, repr=False)  # a file descriptor
    pending: Mapping[str, Any] = field(default_factory=dict, repr=False)  # files by name, for ``begin`` to write
    kept: Path | None = None  # where the run is that had this name before

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """Where its TensorBoard files are."""
        return self.path / "tensorboard"

    @property
    def videos(self) -> Path:
        """Where its videos are."""
        return self.path / "videos"

    @property
    def metrics(self) -> Path:
        """Its records, one JSON object a line; not there before the first."""
        return self.path / "metrics.jsonl"

    def begin(self) -> None:
        """Write the config and plan of this execution; until then a resumed run's folder is as it was. Raises RunError.

        Of a new run ``open_run`` has written them. More than once does no harm.
        """
        if not self.pending:
            return
        try:
            _write_all(self.path, self.pending)
        except OSError as error:
            raise _cannot("use", self.path, error) from error
        object.__setattr__(self, "pending", {})

    def summary(self) -> dict[str, Any] | None:
        """What ``summary.json`` says; None before the first execution ended."""
        path = self.path / "summary.json"
        return _read_json(path) if path.exists() else None

    def plan(self) -> dict[str, Any]:
        """What ``plan.json`` says: how the last execution was laid out. Raises RunError where it is not there."""
        return _read_json(self.path / "plan.json")

    def origin(self) -> dict[str, Any]:
        """What ``origin.json`` says: where the run's code came from. Empty for a run of an earlier version."""
        path = self.path / "origin.json"
        origin = _read_json(path) if path.exists() else {}
        for name, kind in _ORIGIN.items():
            if not isinstance(origin.get(name), kind | None):
                raise RunError(f"{path}: {name} is {origin[name]!r}, expected another kind. It is damaged: remove it.")
        return origin

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json`` at once and whole; what is not a finite number becomes null. Raises RunError."""
        self._write("summary.json", dict(summary))

    def lay_out(self, plan: Mapping[str, Any]) -> None:
        """Write ``plan.json``: the run is laid out otherwise from now on. Raises RunError."""
        self._write(PLAN, plan)

    def trim_metrics(self, env_steps: int, learn_steps: int | None = None) -> int:
        """Drop the records past these steps, which a resumed run will make again, and lines cut by a crash.

        Gives how many lines went. Call it before anything writes to ``metrics``. Raises RunError.
        """
        dropped = 0
        kept = []
        if not self.is_held():
            raise RunError(f"cannot write {self.metrics}: the folder was removed or replaced while the run had it")
        try:
            with self.metrics.open("rb") as lines:
                for line in lines:
                    keep = _is_within(line, env_steps, learn_steps)
                    dropped += not keep
                    if keep:
                        kept.append(line)
            if dropped:
                write_atomic(self.metrics, kept)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _cannot("write", self.metrics, error) from error
        return dropped

    def is_held(self) -> bool:
        """Whether the folder that has this path is the one that was opened: it may have been removed or replaced."""
        if self.lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self.lock), os.stat(self.path / LOCK))
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the lock; more than once does no harm."""
        if self.lock is not None:
            with suppress(OSError):
                os.close(self.lock)
            object.__setattr__(self, "lock", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        if not self.is_held():
            raise RunError(f"cannot write {self.path / name}: the folder was removed or replaced while the run had it")
        try:
            _write_json(self.path / name, content)
        except OSError as error:
            raise _cannot("write", self.path / name, error) from error


def open_run(
    root: Path,
    name: str,
    config: Mapping[str, Any],
    plan: Mapping[str, Any],
    *,
    may_differ: frozenset[str] = frozenset(),
    may_lack: frozenset[str] = frozenset(),
    origin: Mapping[str, Any] | None = None,
    fresh: bool = False,
) -> RunFolder:
    """Make the folder of a new run, or open that of one to resume; holds its lock until closed.

    ``config`` is compared field by field with that of the folder; ``may_differ`` names fields (dotted, ``algo.seed``;
    a name covers all below it) whose new value is taken instead, ``may_lack`` fields (``code.*.reached`` for any that
    begin and end so) that are taken where the folder's config has nothing of that name, as one of an older version.
    With ``fresh`` nothing is compared: the folder of a run that exists is renamed, NAME.1, and a new one made. The plan
    is not compared: the folder tells that of the last execution. Nor is ``origin``, where the code came from, which
    gets this user's mark. Of a run to resume no file is written, but that of the lock, before its ``begin``. Raises
    RunError where the config differs, another process has the folder, or it cannot be written.
    """
    path = _path_of(root, name)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(path)
    except OSError as error:
        raise _cannot("use", path, error) from error
    kept = None
    try:
        if fresh and (path / "config.json").exists():
            kept = set_aside(path)  # whose lock goes with it: nobody else has it in use
            path.mkdir()
            other, lock = lock, lock_folder(path)
            os.close(other)
        files = {"plan.json": plan, "config.json": to_json(config)}  # the config last: with it there is a run
        if origin is not None:
            files = {"origin.json": to_json(origin), **files}
        opened = _open_locked(path, files, may_differ, may_lack, lock)
        return replace(opened, kept=kept)
    except OSError as error:
        os.close(lock)
        raise _cannot("use", path, error) from error
    except BaseException:
        os.close(lock)
        raise


def read_run(root: Path, name: str) -> RunFolder:
    """Open a run to read it, which locks nothing: while it trains, or in a folder that cannot be written.

    ``name`` is a run under ``root``, or the path of a run's folder; of a population it opens the best member. Raises
    UnknownName, or RunError for a damaged config.
    """
    path = next((p for p in (root / name, Path(name)) if (p / "config.json").is_file()), None)
    if path is None:
        known = [p.parent.name for p in root.glob("*/config.json")]
        raise UnknownName("run", name, known, hint=f"Runs are looked for in {root}.")
    config = _read_json(path / "config.json")
    if "population" in config:
        if not (path / BEST / "config.json").is_file():
            raise RunError(f"{path} is a population, and no member of it was saved yet. Train it on, then open it.")
        return read_run(path, BEST)
    return RunFolder(path, config, resumed=True, id=str(config.pop(_ID, "")))


def default_name(algorithm: str, environment: str, seed: int) -> str:
    """A run's name when none is given, safe as a folder's: ``ppo-weft-CartPole-v1-s1``."""
    parts = (re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in (algorithm, environment))
    stem = "-".join(part for part in parts if part)
    if len(stem) > 96:  # file systems stop at 255 bytes; the checksum keeps long names apart
        stem = f"{stem[:87]}-{zlib.crc32(f'{algorithm} {environment}'.encode()):08x}"
    return f"{stem}-s{seed}"


def _open_locked(
    path: Path,
    files: dict[str, Any],
    may_differ: frozenset[str],
    may_lack: frozenset[str],
    lock: int,
) -> RunFolder:
    config_path, config = path / "config.json", files["config.json"]
    resumed = config_path.exists()
    config.pop(_ID, None)
    if resumed:
        old = _read_json(config_path)
        run_id = str(old.pop(_ID, ""))
        found = differences(old, config)
        lacking = [d for d in found if d.added and any(fnmatchcase(d.field, lack) for lack in may_lack)]
        refused = [d for d in found if not d.is_one_of(may_differ) and d not in lacking]
        if refused:
            raise _another_config(path, refused)
    elif foreign := sorted(p.name for p in path.iterdir() if not _is_ours(p)):
        raise RunError(
            f"{path} is not a run: it has no config.json, but {', '.join(foreign[:3])}. Nothing in it was touched; "
            "choose another name with --run."
        )
    else:
        run_id = secrets.token_hex(8)
    if "origin.json" in files:
        with suppress(RunError):  # without a mark the run trains all the same, and asks for --trust to be opened
            files["origin.json"] = with_mark(config, files["origin.json"])
    files["config.json"] = {_ID: run_id, **config} if run_id else config
    if resumed:
        changed = files if found else {name: files[name] for name in files if name != "config.json"}
        return RunFolder(path, config, resumed, run_id, lock, changed)
    _write_all(path, files)
    return RunFolder(path, config, resumed, run_id, lock)


def _another_config(path: Path, refused: list[Difference]) -> RunError:
    ways = "Resume it with the same values"
    if any(d.is_one_of(frozenset({"code"})) for d in refused):
        ways = "Your code has changed since, and the run learned with the old. Go on with the new by --new-code"
    if any(d.field == "algorithm" for d in refused):  # then its fields say no more
        refused = [d for d in refused if not d.is_one_of(frozenset({"algo"}))]
    listed = "\n  ".join(map(str, refused))
    return RunError(
        f"run {path} exists, with another config:\n  {listed}\n{ways}, begin anew with --fresh (the old run is kept as "
        f"{numbered(path).name}), or train under another name with --run."
    )


def _write_all(path: Path, files: Mapping[str, Any]) -> None:
    for folder in _FOLDERS:
        (path / folder).mkdir(exist_ok=True)
    for name, content in files.items():
        _write_json(path / name, content)


def _is_ours(path: Path) -> bool:
    """Whether a run that was killed before it wrote its config may have left this."""
    if path.name in _FOLDERS:
        return not any(path.iterdir())
    return path.name in (LOCK, "plan.json", "origin.json") or (
        path.name.startswith(".") and path.name.endswith(TEMPORARY)
    )


def _path_of(root: Path, name: str) -> Path:
    if not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable():
        raise RunError(
            f"{name!r} cannot be a run's name: it becomes a folder in {root}: no slash, and no dot in front. "
            f"For example: {default_name('', name, 0)}"
        )
    return root / name


def lock_folder(path: Path) -> int:
    """Lock a run's folder for this process: a descriptor that holds the lock until it is closed. Raises RunError."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise RunError(
            f"run {path} is in use by another process{f' ({owner})' if owner else ''}. Wait for it or stop it, "
            "or train under another name with --run."
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    os.truncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def _is_within(line: bytes, env_steps: int, learn_steps: int | None) -> bool:
    """Whether a record is whole and was made at these steps or before; where it does not tell, it was."""
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    limits = {"env_steps": env_steps, "learn_steps": learn_steps}
    made = {name: record.get(name, 0) for name, limit in limits.items() if limit is not None}
    return line.endswith(b"\n") and all(
        isinstance(steps, int | float) and steps <= float(limits[name] or 0) for name, steps in made.items()
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, [msgspec.json.format(msgspec.json.encode(content), indent=2), b"\n"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunError(
            f"{path} cannot be read as JSON: {error}. Restore it, or train under another name with --run."
        ) from None
    except OSError as error:
        raise _cannot("read", path, error) from error


def _cannot(verb: str, path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot {verb} {path}: {error.strerror or error}. Make it writable and free some space, or choose another "
        "folder for runs."
    )
