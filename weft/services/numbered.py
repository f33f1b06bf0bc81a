"""Runs that gave their name to a newer one: NAME.1 is the first of that name, NAME.2 the second, and so on."""

from __future__ import annotations

import glob
from pathlib import Path


def numbered(path: Path) -> Path:
    """The next path that is free for the run in this folder."""
    numbers = (p.name.removeprefix(f"{path.name}.") for p in path.parent.glob(f"{glob.escape(path.name)}.*"))
    return path.with_name(f"{path.name}.{1 + max((int(n) for n in numbers if n.isdecimal()), default=0)}")


def set_aside(path: Path) -> Path:
    """Rename a run's folder to the next number that is free, and give its new path. Raises OSError."""
    kept = numbered(path)
    path.rename(kept)
    return kept
