"""A folder of checkpoints: saved so that no crash loses the last one, loaded so that no damage goes unnoticed.

The newest is the one of the highest step, never of the latest time: clocks jump. A folder has one writer at a time
(the run folder's lock sees to it) and any number of readers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.core.errors import CheckpointError, CorruptCheckpoint
from weft.core.types import Tree
from weft.services.atomic import TEMPORARY, sync_folder, write_atomic
from weft.services.checkpoint_file import check_bytes, decode_header, encode, read_tree
from weft.services.leaves import params_sha256

__all__ = ["latest", "load", "load_latest", "params_sha256", "prune", "save", "step_of"]

SUFFIX = ".weft"
_NAME = re.compile(r"(\d{12,})" + re.escape(SUFFIX))


def save(folder: Path, step: int, tree: Tree, document: dict[str, Any], *, keep: int = 3) -> Path:
    """Save a tree of arrays and a JSON document as the checkpoint of ``step``; blocks until it is on the disk.

    Then removes all but the newest ``keep``. The tree is read during the call only. Raises CheckpointError where it
    cannot be stored (a full or read-only disk, a leaf that is no array); the checkpoints from before are then
    untouched, and the next save may well succeed.
    """
    if step < 0 or keep < 1:
        raise CheckpointError(f"a checkpoint's step must be at least 0 and keep at least 1, got {step} and {keep}")
    path = folder / f"{step:012d}{SUFFIX}"
    pieces = encode(step, tree, document)
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        _remove_stale(folder)  # a save that was killed may have left most of a disk's worth
        write_atomic(path, pieces)
        prune(folder, keep, good=path)
    except OSError as error:
        raise CheckpointError(
            f"cannot save checkpoint {path}: {error.strerror or error}. Free some space or make the folder writable; "
            "the checkpoints saved before are untouched."
        ) from error
    return path


def load(path: Path, template: Tree, *, part: bool = False) -> tuple[Tree, dict[str, Any]]:
    """Load a checkpoint as the tree that ``template`` describes, and its document.

    Everything in the file is checked before any array is made. The template's leaves are arrays, whose values do not
    matter, or ``jax.ShapeDtypeStruct``; the tree that comes back is the caller's own. Raises CorruptCheckpoint for
    damage, and CheckpointError where the file is whole but does not fit; with ``part`` the file may hold more.
    """
    try:
        with path.open("rb") as file:
            header = decode_header(*check_bytes(file, str(path)), str(path))
            return read_tree(file, header, template, str(path), part=part), header.document
    except OSError as error:
        raise CorruptCheckpoint(f"cannot read checkpoint {path}: {error.strerror or error}") from error


def latest(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the highest step first; none where there is no folder. Contents unchecked."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"cannot list the checkpoints in {folder}: {error.strerror or error}") from error
    found = [folder / name for name in names if _NAME.fullmatch(name)]
    return sorted(found, key=step_of, reverse=True)


def load_latest(
    folder: Path, template: Tree, warn: Callable[[str], None], *, part: bool = False
) -> tuple[Tree, dict[str, Any], Path] | None:
    """Load the newest checkpoint that is whole: its tree, its document, its path; None where the folder has none.

    Each corrupt one that is passed over is told to ``warn``. Where all are corrupt, or the newest whole one does not
    fit the template, it raises CheckpointError: a run never starts from scratch in silence, nor goes back further
    than it must. ``part`` is ``load``'s.
    """
    candidates = latest(folder)
    reasons = []
    for index, path in enumerate(candidates):
        try:
            tree, document = load(path, template, part=part)
        except CorruptCheckpoint as error:
            reasons.append(str(error))
            before = candidates[index + 1].name if index + 1 < len(candidates) else "there is none"
            warn(f"{error}. Trying the one before it: {before}.")
        else:
            return tree, document, path
    if candidates:
        raise CheckpointError(
            f"none of the {len(candidates)} checkpoints in {folder} can be used:\n  "
            + "\n  ".join(reasons)
            + "\nRestore one from a copy, or start over with another --run (or by removing this run's folder)."
        )
    return None


def prune(folder: Path, keep: int = 3, *, good: Path | None = None) -> list[Path]:
    """Remove all but the newest ``keep`` checkpoints, and what killed saves left; gives the paths removed.

    A whole one always stays: ``good`` if it is given (as just written), else the newest that passes its check. Where
    none passes, all stay. Raises OSError.
    """
    candidates = latest(folder)
    stay = set(candidates[: max(keep, 1)])
    whole = good or next((path for path in candidates if _is_whole(path)), None)
    removed = [path for path in candidates if path not in stay and path != whole] if whole else []
    for path in removed:
        os.unlink(path)
    _remove_stale(folder)
    return removed


def step_of(path: Path) -> int:
    """The step in a checkpoint's file name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path} is not named like a checkpoint, such as {1234:012d}{SUFFIX}")
    return int(match[1])


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            check_bytes(file, str(path))
    except (OSError, CorruptCheckpoint):
        return False
    return True


def _remove_stale(folder: Path) -> None:
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(TEMPORARY):
            os.unlink(folder / name)
