"""``weft status``, ``weft logs``, ``weft stop``: runs that are under way, by their folders."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.cli.detached import HEAD
from weft.cli.flags import Flags, parse
from weft.core.errors import ConfigError
from weft.core.setting import REQUIRED, setting
from weft.runtimes.prepare.settings import Settings

ABOUT = {
    "status": "Say of a run, or of all in root, whether it is under way, how far it is, and how it ended. Reads only.",
    "logs": "Print the end of a worker's log. Without WORKER: which there are, and the end of what the head printed.",
    "stop": "Have a run save and end, as Ctrl-C does, and wait for it. Exit code 1 where it does not end in time.",
}
TAIL_BYTES = 1 << 16
FOLLOW_SECONDS = 0.2


@dataclass(frozen=True)
class StatusFlags:
    """Of which run."""

    run: str | None = setting(None, "the run's name, or its folder; unless given: all runs in root", argument="RUN")
    json: bool = setting(False, "as one line of JSON")


@dataclass(frozen=True)
class LogsFlags:
    """Whose log."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    worker: str | None = setting(
        None,
        "a worker's name, such as learn-0; head: what a detached run prints; unless given: which there are",
        argument="WORKER",
    )
    lines: int = setting(50, "lines from its end", at_least=1)
    follow: bool = setting(False, "go on printing what comes, until the run ends")


@dataclass(frozen=True)
class StopFlags:
    """Which run."""

    run: str = setting(REQUIRED, "the run's name, or its folder", argument="RUN")
    seconds: float = setting(30.0, "to wait for its end", at_least=0)
    at_once: bool = setting(False, "do not save: what was saved before is kept")


def main(command: str, arguments: list[str]) -> int:
    """Parse, read, print."""
    cls = {"status": StatusFlags, "logs": LogsFlags, "stop": StopFlags}[command]
    its_folder = Flags(Settings, "its folder", names=("root",))
    given, kept = parse(f"weft {command}", ABOUT[command], arguments, Flags(cls), its_folder)
    root = Settings(**kept).root
    match cls(**given):
        case StatusFlags() as flags:
            return _status(flags, root)
        case LogsFlags() as flags:
            return _logs(flags, root)
        case StopFlags() as flags:
            return _stop(flags, root)
    raise AssertionError(command)


def _status(flags: StatusFlags, root: Path) -> int:
    from weft.services.run_folder import read_run

    paths = [read_run(root, flags.run).path] if flags.run else sorted(p.parent for p in root.glob("*/config.json"))
    states = [_state(path) for path in paths]
    if flags.json:
        print(json.dumps(states))
    elif not states:
        print(f"{root}: no runs")
    for state in states if not flags.json else ():
        print(f"{state['run']:30} {state['state']:24} {state['env_steps']:>14,} env steps")
    return 0


def _state(path: Path) -> dict[str, Any]:
    from weft.services.run_owner import owner_of

    owner, summary, record = owner_of(path), _json(path / "summary.json"), _last_record(path / "metrics.jsonl")
    said = f"under way in process {owner}" if owner else summary.get("exit", "ended without a word")
    steps = record.get("env_steps", summary.get("env_steps", 0)) if owner else summary.get("env_steps", 0)
    return {"run": path.name, "state": said, "process": owner, "env_steps": steps or record.get("env_steps", 0)}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_record(path: Path) -> dict[str, Any]:
    lines = _tail(path).splitlines()
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            return record
    return {}


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _logs(flags: LogsFlags, root: Path) -> int:
    from weft.services.run_folder import read_run

    run = read_run(root, flags.run).path
    folder = run / "logs"
    known = sorted(path.stem for path in folder.glob("*.log"))
    if flags.worker is None:
        others = [name for name in known if name != HEAD]
        if others or not known:
            print("\n".join(others) if others else f"{folder}: no logs")
        if HEAD not in known:
            return 0
    worker = flags.worker or HEAD
    if worker not in known:
        raise ConfigError(f"there is no log of {worker!r} in {folder} (known: {', '.join(known) or 'none'}).")
    path = folder / f"{worker}.log"
    end = path.stat().st_size
    print("\n".join(_tail(path).splitlines()[-flags.lines :]), flush=True)
    if flags.follow:
        with suppress(KeyboardInterrupt):
            _follow(run, path, end)
    return 0


def _follow(run: Path, path: Path, at: int) -> None:
    """Print what is added to a log after the byte ``at``, until the run has ended."""
    from weft.services.run_owner import owner_of

    with path.open("rb") as file:
        file.seek(at)
        alive = True
        while alive:
            alive = owner_of(run) is not None  # asked first: what it printed last is read after that
            for line in file:
                print(line.decode(errors="replace"), end="", flush=True)
            if alive:
                time.sleep(FOLLOW_SECONDS)


def _stop(flags: StopFlags, root: Path) -> int:
    from weft.services.run_folder import read_run
    from weft.services.run_owner import stop

    path = read_run(root, flags.run).path
    if not stop(path, flags.seconds, at_once=flags.at_once):
        print(f"{path} has not ended within {flags.seconds:.0f} s: it may be saving. --at-once does not let it.")
        return 1
    print(f"{path} has ended: {_state(path)['state']}")
    return 0
