"""Every checkpoint of a run, read to its last byte: what ``weft checkpoints`` shows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from weft.core.errors import CheckpointError, CorruptCheckpoint
from weft.services.checkpoint_file import Header, Label, check_bytes, decode_header
from weft.services.checkpoints import check_identity, latest, step_of
from weft.services.retention import Candidate, best_first


class Checked(NamedTuple):
    """A checkpoint after its check; ``problem`` is empty where a run can go on from it."""

    path: Path
    step: int  # learn steps, by its name
    nbytes: int
    label: Label | None  # None where it could not be read
    problem: str
    is_best: bool = False


def check_all(folder: Path, run: str) -> list[Checked]:
    """The checkpoints in a folder, the highest step first, each read whole and compared with its checksum.

    ``run`` is the id that they must have. Raises CheckpointError where the folder cannot be listed.
    """
    found = [_checked(path, run) for path in latest(folder)]
    ranked = best_first(Candidate(one.step, one.label) for one in found if one.label is not None and not one.problem)
    return [one._replace(is_best=not one.problem and one.step == ranked[0].step) if ranked else one for one in found]


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
    return Checked(path, step_of(path), nbytes, None if header is None else header.label, problem)
