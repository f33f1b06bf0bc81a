"""Asking a run under way for other replicas, through its folder: a request there, and the run's answer beside it.

    RUN/scale/ID.json          what is asked, for the process that has the run now; whoever removes it has it
    RUN/scale/ID.answer.json   what became of it, for the command that asked

Either is there whole or not at all. A run that begins answers nothing that was asked of a process before it.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from weft.core.errors import RunError
from weft.services.atomic import write_atomic
from weft.services.run_owner import owner_of

FOLDER = "scale"
_ANSWER = ".answer.json"
_LOOK_SECONDS = 0.1

Became: TypeAlias = Literal["scaled", "as it was", "refused", "failed"]


@dataclass(frozen=True)
class ScaleRequest:
    """So many replicas of the groups with these fragments; or a whole plan."""

    process: int  # that has the run
    counts: dict[str, int] = field(default_factory=dict)
    plan: str = ""
    asker: int = field(default_factory=os.getpid)
    id: str = field(default_factory=lambda: f"{time.time_ns():020d}-{secrets.token_hex(4)}")


@dataclass(frozen=True)
class ScaleAnswer:
    """What became of a request; ``text`` says it in words."""

    became: Became
    text: str
    plan: str  # of now
    seconds: float = 0.0  # without a learn step


def next_request(run: Path) -> ScaleRequest | None:
    """The oldest request to this process, which takes it; None where there is none. What is damaged is removed."""
    try:
        names = sorted(name for name in os.listdir(run / FOLDER) if name.endswith(".json") and name[0].isdigit())
    except OSError:
        return None
    for name in names:
        if name.endswith(_ANSWER):
            continue
        path = run / FOLDER / name
        try:
            data = path.read_bytes()
            path.unlink()
            request = msgspec.json.decode(data, type=ScaleRequest)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):  # withdrawn meanwhile, or made by nobody of ours
            continue
        if request.process == os.getpid():
            return request
    return None


def answer(run: Path, request: ScaleRequest, became: ScaleAnswer) -> None:
    """Tell the command that asked, if it is still there; where that cannot be written, it sees for itself."""
    with suppress(OSError):
        os.kill(request.asker, 0)
        write_atomic(run / FOLDER / f"{request.id}{_ANSWER}", [msgspec.json.encode(became)])


def post(run: Path, request: ScaleRequest) -> Path:
    """Put a request there, and wait for nothing: its file. Raises RunError where that cannot be written."""
    path = run / FOLDER / f"{request.id}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, [msgspec.json.encode(request)])
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. A run is asked through its folder.") from error
    return path


def ask(run: Path, request: ScaleRequest, seconds: float) -> ScaleAnswer:
    """Ask the run, and wait for its answer. Raises RunError where it ends before, or does not answer in time.

    What the run has not taken by then, or when this is interrupted, is withdrawn.
    """
    path = post(run, request)
    said = path.with_name(f"{request.id}{_ANSWER}")
    until = time.monotonic() + seconds
    try:
        while True:
            alive = owner_of(run) == request.process  # asked first: what it said last is read after that
            with suppress(FileNotFoundError):
                return msgspec.json.decode(said.read_bytes(), type=ScaleAnswer)
            if not alive:
                raise RunError(f"run {run} has ended before it answered.")
            if time.monotonic() > until:
                taken = not path.exists()
                what = "is at it still: `weft status` and its output tell more" if taken else "has not looked at it"
                raise RunError(f"run {run} has not answered within {seconds:.0f} s: it {what}.")
            time.sleep(_LOOK_SECONDS)
    finally:
        for left in (path, said):
            with suppress(OSError):
                left.unlink()
        with suppress(OSError):  # others may be asking
            path.parent.rmdir()
