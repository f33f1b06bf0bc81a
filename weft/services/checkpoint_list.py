"""Every checkpoint of a run, read to its last byte: what ``weft checkpoints`` shows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from weft.core.errors import CheckpointError, CorruptCheckpoint
from weft.services.checkpoint_file import Header, Label, check_bytes, decode_header
from weft.services.checkpoints import check_identity, latest, step_of
from weft.services.retention import Candidate, best_first
from weft.services.tags import BEST, is_tag, tags_in


class Checked(NamedTuple):
    """A checkpoint after its check; ``problem`` is empty where it can be used.

    A run goes on from those that are whole and not ``params_only``.
    """

    path: Path
    step: int  # learn steps, by its name; of a tag's file by what it says
    nbytes: int
    label: Label | None  # None where it could not be read
    problem: str
    is_best: bool = False
    tags: tuple[str, ...] = ()  # its names besides
    params_only: bool = False


def check_all(folder: Path, run: str) -> list[Checked]:
    """The checkpoints in a folder, the highest step first, each read whole and compared with its checksum.

    What is there by its tag alone comes after those that have their own names. ``run`` is the id that they must have.
    Raises CheckpointError where the folder cannot be listed.
    """
    found = [_checked(path, run) for path in latest(folder)]
    same = {_identity(one.path): k for k, one in enumerate(found)}
    for name, path in tags_in(folder).items():
        k = same.get(_identity(path))
        if k is None:
            same[_identity(path)] = len(found)
            found.append(_checked(path, run)._replace(tags=(name,), is_best=name == BEST))
        else:
            found[k] = found[k]._replace(tags=(*found[k].tags, name), is_best=found[k].is_best or name == BEST)
    if any(one.is_best and not one.problem for one in found):
        return found
    ranked = best_first(Candidate(one.step, one.label) for one in found if one.label is not None and not one.problem)
    return [one._replace(is_best=not one.problem and one.step == ranked[0].step) if ranked else one for one in found]


def _identity(path: Path) -> tuple[int, int] | Path:
    """Which file it is: a tag may be another name of a checkpoint."""
    try:
        found = path.stat()
    except OSError:
        return path
    return found.st_dev, found.st_ino


def _checked(path: Path, run: str) -> Checked:
    header: Header | None = None
    problem, nbytes = "", 0
    try:
        with path.open("rb") as file:
            nbytes = path.stat().st_size
            header = decode_header(*check_bytes(file, str(path)), str(path))
        check_identity(path, header, run)
    except OSError as error:
        problem = f"cannot read checkpoint {path}: {error.strerror or error}"
    except (CorruptCheckpoint, CheckpointError) as error:
        problem = str(error)
    step = header.step if header is not None and is_tag(path) else 0 if is_tag(path) else step_of(path)
    alone = header is not None and "engine" not in header.document
    return Checked(path, step, nbytes, None if header is None else header.label, problem, params_only=alone)
