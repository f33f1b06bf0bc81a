"""A folder of checkpoints: saved so that no crash loses the last one, loaded so that no damage goes unnoticed.

The newest is the one of the highest step, never of the latest time: clocks jump. Each file says which run it is of and
which step it holds; one of another run, or under another step's name, is never loaded. A folder has one writer at a
time (the run folder's lock sees to it) and any number of readers.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weft.core.errors import CheckpointError, CorruptCheckpoint, ForeignCheckpoint
from weft.core.types import Tree
from weft.services.atomic import TEMPORARY, sync_folder, write_atomic
from weft.services.checkpoint_file import (
    Front,
    Header,
    Label,
    check_bytes,
    decode_header,
    encode,
    read_front,
    read_tree,
)
from weft.services.leaves import params_sha256
from weft.services.retention import Candidate, Retention, best_first
from weft.services.tags import BEST, LATEST, check_tag, is_tag, put_tag, tag_path, tags_in

__all__ = ["Label", "Packed", "Retention", "latest", "load", "load_latest", "pack", "params_sha256", "prune", "save"]

SUFFIX = ".weft"
_NAME = re.compile(r"(\d{12,})" + re.escape(SUFFIX))


class Packed(NamedTuple):
    """A checkpoint that is ready to be written, once."""

    step: int
    pieces: Iterator[bytes | memoryview]
    run: str


def pack(step: int, tree: Tree, document: dict[str, Any], label: Label) -> Packed:
    """Make a checkpoint ready to be written, by any thread; the tree's arrays must not change until it is.

    Raises CheckpointError for what cannot be stored.
    """
    if step < 0:
        raise CheckpointError(f"a checkpoint's step must be at least 0, got {step}")
    return Packed(step, encode(step, tree, document, label), label.run)


def write(folder: Path, packed: Packed, keep: Retention) -> Path:
    """Write a checkpoint, then remove those that ``keep`` does not name; blocks until it is on the disk.

    Raises CheckpointError where it cannot be stored (a full or read-only disk); the checkpoints from before are then
    untouched, and the next save may well succeed.
    """
    path = folder / f"{packed.step:012d}{SUFFIX}"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        _remove_stale(folder)  # a save that was killed may have left most of a disk's worth
        write_atomic(path, packed.pieces)
        prune(folder, keep, run=packed.run, good=path)
    except OSError as error:
        raise CheckpointError(
            f"cannot save checkpoint {path}: {error.strerror or error}. Free some space or make the folder writable; "
            "the checkpoints saved before are untouched."
        ) from error
    return path


def save(
    folder: Path,
    step: int,
    tree: Tree,
    document: dict[str, Any],
    *,
    label: Label = Label(),
    keep: Retention = Retention(),
) -> Path:
    """Save a tree of arrays and a JSON document as the checkpoint of ``step``: ``pack``, then ``write``."""
    return write(folder, pack(step, tree, document, label), keep)


def load(path: Path, template: Tree, *, run: str | None = None, part: bool = False) -> tuple[Tree, dict[str, Any]]:
    """Load a checkpoint as the tree that ``template`` describes, and its document.

    Everything in the file is checked before any array is made. The template's leaves are arrays, whose values do not
    matter, or ``jax.ShapeDtypeStruct``; the tree that comes back is the caller's own. Raises CorruptCheckpoint for
    damage, ForeignCheckpoint for a file of another step than its name's or, where ``run`` is given, of another run,
    and CheckpointError where the file is whole but does not fit; with ``part`` the file may hold more.
    """
    try:
        with path.open("rb") as file:
            header = decode_header(*check_bytes(file, str(path)), str(path))
            check_identity(path, header, run)
            return read_tree(file, header, template, str(path), part=part), header.document
    except OSError as error:
        raise CorruptCheckpoint(f"cannot read checkpoint {path}: {error.strerror or error}") from error


def check_identity(path: Path, header: Header | Front, run: str | None) -> None:
    """Raise ForeignCheckpoint where a file is of another step than its name says, or of another run than ``run``."""
    if run is not None and header.label.run != run:
        whose = f"run {header.label.run}" if header.label.run else "a run without an id, of an earlier version"
        raise ForeignCheckpoint(f"checkpoint {path} is of {whose}, not of this run ({run or 'which has no id'})")
    if not is_tag(path) and step_of(path) != header.step:
        raise ForeignCheckpoint(
            f"checkpoint {path} was renamed: it holds learn step {header.step}, and its name was "
            f"{header.step:012d}{SUFFIX}"
        )


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


def chosen(folder: Path, which: str | int, run: str | None) -> list[Path]:
    """The checkpoints to try, in order: by step for "latest", by return for "best", of one learn step, or by a tag.

    The best is that of the tag, which evaluation in the run gives, or else of the highest mean return in training.
    ``step-N`` is the one of N env steps, by its tag or its own count. Raises CheckpointError where there is no such.
    """
    paths, tagged = latest(folder), tags_in(folder)
    if which == LATEST:
        return paths
    if which == BEST:
        found = [tagged[BEST]] if BEST in tagged else []
        fronts = {path: front for path in paths if (front := _front_of(path, run)) is not None}
        ranked = best_first(Candidate(front.step, front.label) for front in fronts.values())
        found += [folder / f"{candidate.step:012d}{SUFFIX}" for candidate in ranked]
        if found or not paths:
            return found
        raise CheckpointError(f"no checkpoint in {folder} tells a return: no episode had ended when they were saved")
    if which in tagged:
        return [tagged[str(which)]]
    if str(which).startswith("step-"):
        wanted = str(which).removeprefix("step-")
        made = [p for p in paths if (front := _front_of(p, run)) is not None and str(front.label.env_steps) == wanted]
        if made:
            return made
    if found := [path for path in paths if str(step_of(path)) == str(which)]:
        return found
    if not paths and not tagged:
        return []
    steps = ", ".join(str(step_of(path)) for path in reversed(paths)) or "none"
    names = ", ".join(dict.fromkeys((LATEST, BEST, *tagged)))
    near = difflib.get_close_matches(str(which), [LATEST, BEST, *tagged], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise CheckpointError(
        f"there is no checkpoint {which!r} in {folder}.{hint} Tags: {names}; learn steps: {steps}. "
        "`weft checkpoints RUN` lists them with their env steps."
    )


def put_tag_on(folder: Path, tag: str, which: str | int, run: str) -> Path:
    """Give a checkpoint, ``chosen``'s, a name of the user's; it then stays. The first that is whole is taken.

    Raises ConfigError for what cannot be a tag, CheckpointError where there is no such checkpoint, or none is whole.
    """
    check_tag(tag)
    for path in chosen(folder, which, run):
        if _is_whole(path):
            return put_tag(folder, tag, path)
    raise CheckpointError(f"there is no checkpoint {which!r} in {folder} that is whole: nothing was tagged")


def load_latest(
    folder: Path,
    template: Tree,
    warn: Callable[[str], None],
    *,
    run: str | None = None,
    part: bool = False,
    which: str | int = "latest",
) -> tuple[Tree, dict[str, Any], Path] | None:
    """Load the newest checkpoint that is whole: its tree, its document, its path; None where the folder has none.

    Each that is passed over, as corrupt or as another run's, is told to ``warn``. Where no one is left, or the newest
    whole one does not fit the template, it raises CheckpointError: a run never starts from scratch in silence, nor
    goes back further than it must. ``which`` is ``chosen``'s, and ``run`` and ``part`` are ``load``'s.
    """
    candidates = chosen(folder, which, run)
    reasons = []
    for index, path in enumerate(candidates):
        try:
            tree, document = load(path, template, run=run, part=part)
        except (CorruptCheckpoint, ForeignCheckpoint) as error:
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


def prune(
    folder: Path,
    keep: Retention = Retention(),
    *,
    run: str = "",
    good: Path | None = None,
) -> list[Path]:
    """Remove the run's checkpoints that ``keep`` does not name, and what killed saves left; gives the paths removed.

    A whole one always stays: ``good`` if it is given (as just written), else the newest that passes its check. Where
    none passes, all stay. Files of other runs, and renamed ones, are not touched. Raises OSError.
    """
    ours: dict[Path, Candidate] = {}
    for path in latest(folder):
        front = _read_front(path)
        if front is None:  # damaged: it counts by its name
            ours[path] = Candidate(step_of(path), Label(run))
        elif front.label.run == run and front.step == step_of(path):
            ours[path] = Candidate(front.step, front.label)
    for begins, step in keep.stretches(ours.values()).items():
        path = folder / f"{step:012d}{SUFFIX}"
        if not tag_path(folder, name := f"step-{begins}").exists() and _is_whole(path):
            put_tag(folder, name, path)
    stay = keep.stay(ours.values())
    whole = good or next((path for path in ours if _is_whole(path)), None)
    removed = [path for path, one in ours.items() if one.step not in stay and path != whole] if whole else []
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


def _front_of(path: Path, run: str | None) -> Front | None:
    """What a file says of itself, unchecked; None where it cannot be read, is another run's, or was renamed."""
    front = _read_front(path)
    if front is None or front.step != step_of(path) or (run is not None and front.label.run != run):
        return None
    return front


def _read_front(path: Path) -> Front | None:
    try:
        with path.open("rb") as file:
            return read_front(file)
    except OSError:
        return None


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
