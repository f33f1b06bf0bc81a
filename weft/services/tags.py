"""Tags: names for checkpoints that stay. Each is a file of its own in the folder ``tags`` beside them.

    best            params of the highest score that anything in the run gave (evaluation); params alone
    step-1000000    the first checkpoint of 1,000,000 env steps or more, where ``keep_every`` asked for it
    yours           whatever you called one: the same file under another name, which costs no space while both are there

What removes old checkpoints does not look there, so that nothing can race with it. ``latest`` is no file: it is the
checkpoint of the highest step.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from weft.core.errors import CheckpointError, ConfigError
from weft.services.atomic import TEMPORARY, sync_folder, write_atomic

FOLDER, SUFFIX, BEST, LATEST = "tags", ".weft", "best", "latest"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_STEP = re.compile(r"step-\d+")


def check_tag(name: str) -> None:
    """Raise ConfigError for what cannot be a user's tag."""
    if name in (BEST, LATEST) or _STEP.fullmatch(name):
        raise ConfigError(f"the tag {name!r} is the run's own: choose another name")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a tag: it begins with a letter, and has letters, digits, '_', '.' and '-', 64 at most"
        )


def tag_path(checkpoints: Path, name: str) -> Path:
    """Where a tag's file is, or would be."""
    return checkpoints / FOLDER / f"{name}{SUFFIX}"


def is_tag(path: Path) -> bool:
    """Whether a file is a tag's, and not a checkpoint under its own name."""
    return path.parent.name == FOLDER


def tags_in(checkpoints: Path) -> dict[str, Path]:
    """The tags of a folder of checkpoints, by name. Contents unchecked."""
    try:
        names = os.listdir(checkpoints / FOLDER)
    except OSError:
        return {}
    found = sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX) and not name.startswith("."))
    return {name: tag_path(checkpoints, name) for name in found}


def put_tag(checkpoints: Path, name: str, path: Path) -> Path:
    """Name a checkpoint's file; another of that name gives way to it. Raises CheckpointError."""
    place = tag_path(checkpoints, name)
    temporary = place.with_name(f".{place.name}.{os.getpid()}{TEMPORARY}")
    try:
        _make(place.parent)
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)
        os.replace(temporary, place)
        temporary.unlink(missing_ok=True)  # where both were one file already, replacing leaves it
        sync_folder(place.parent)
    except OSError as error:
        raise CheckpointError(f"cannot tag {path} as {name!r}: {error.strerror or error}") from error
    return place


def write_tag(checkpoints: Path, name: str, pieces: Iterable[bytes | memoryview]) -> Path:
    """Write a checkpoint that has no other name; what had the tag before gives way to it. Raises CheckpointError."""
    place = tag_path(checkpoints, name)
    try:
        _make(place.parent)
        write_atomic(place, pieces)
    except OSError as error:
        raise CheckpointError(
            f"cannot save {place}: {error.strerror or error}. What had that tag before is untouched."
        ) from error
    return place


def remove_tag(checkpoints: Path, name: str) -> None:
    """Take a tag away; a checkpoint that has its own name stays. Raises CheckpointError where there is no such tag."""
    try:
        tag_path(checkpoints, name).unlink()
    except FileNotFoundError:
        known = ", ".join(tags_in(checkpoints)) or "none"
        raise CheckpointError(f"there is no tag {name!r} in {checkpoints}: there are {known}") from None
    except OSError as error:
        raise CheckpointError(f"cannot remove the tag {name!r}: {error.strerror or error}") from error


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
