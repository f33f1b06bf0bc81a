"""What a run's folder tells of steps made before, apart from its checkpoints: whether those are missing."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgspec

from weft.core.errors import RunError
from weft.services.run_folder import RunFolder

_TAIL = 256 * 2**10  # bytes of metrics.jsonl that are looked at: its last records


class ProgressMade(NamedTuple):
    """Steps that an earlier execution made."""

    env_steps: int
    told_by: str  # the file that tells
    saved: bool  # whether some of it was saved, so that there must be a checkpoint


def progress_made(folder: RunFolder) -> ProgressMade | None:
    """What summary and metrics tell; None where no learn step was made. Raises RunError where they cannot be read.

    Files of versions before ``saved_learn_steps`` was in them count as saved: better refused than lost.
    """
    summary = folder.summary() or {}
    if summary.get("learn_steps"):
        how = summary.get("exit")
        saved = how != "failed" or bool(summary.get("saved_learn_steps", 1))
        return ProgressMade(int(summary.get("env_steps", 0)), "summary.json", saved)
    record = _last_record(folder)
    if record.get("learn_steps"):
        return ProgressMade(int(record.get("env_steps", 0)), "metrics.jsonl", bool(record.get("saved_learn_steps", 1)))
    return None


def refuse_lost_checkpoints(folder: RunFolder) -> str:
    """Call it where a run to resume has no checkpoint. Raises RunError where it must have had one.

    Gives what to warn of where the run was ended before its first one, so that it begins from scratch; else nothing.
    """
    made = progress_made(folder)
    if made is None:
        return ""
    if made.saved:
        raise RunError(
            f"run {folder.path} has made {made.env_steps:,} env steps ({made.told_by} tells), and there is no "
            f"checkpoint in {folder.checkpoints}: it was removed, or not copied. Nothing was touched. Put the "
            "checkpoints back and run the same command; to begin from scratch, add --fresh, or name another --run."
        )
    return (
        f"run {folder.path} was ended before its first checkpoint: the {made.env_steps:,} env steps that it had made "
        "are lost, and it begins from scratch"
    )


def _last_record(folder: RunFolder) -> dict[str, Any]:
    """The last whole record of the metrics; empty where there is none."""
    try:
        with folder.metrics.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunError(f"cannot read {folder.metrics}: {error.strerror or error}") from error
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):  # cut by a crash
            continue
    return {}
