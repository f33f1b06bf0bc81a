"""Data sets by what a command line calls them: a folder, or ``minari:NAME``. One that is open is not read again."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from weft.data.dataset import Dataset
from weft.data.files import ABOUT

MINARI = "minari:"


def opened(name: str) -> Dataset:
    """The data set of a folder, or that of Minari's. Raises ConfigError, or MissingExtra."""
    about = Path(name) / ABOUT
    written = 0 if name.startswith(MINARI) or not about.is_file() else about.stat().st_mtime_ns
    return _opened(name, written)


@lru_cache(maxsize=2)
def _opened(name: str, written: int) -> Dataset:
    if name.startswith(MINARI):
        return Dataset.from_minari(name.removeprefix(MINARI))
    return Dataset.load(name)
