"""What environments met and did not end the run: counted, said once for each kind, and logged with its traceback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from weft.envs.guards import Trouble

MAX_KINDS = 100
"""Kinds that are told of: an environment whose messages never repeat must not fill a disk."""


class TroubleLog:
    """Says each kind of trouble once, and appends it to ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: set[str] = set()

    def take(self, troubles: Iterable[Trouble], warn: Callable[[str], None]) -> None:
        """Tell of what is new among ``troubles``."""
        for trouble in troubles:
            if trouble.kind in self._known or not trouble.text or len(self._known) >= MAX_KINDS:
                continue
            self._known.add(trouble.kind)
            follows = ""
            if trouble.errors:
                follows = " That environment begins again, and the others go on (--env-errors fail ends the run)."
            elif trouble.outside:
                follows = ". Such are counted and trained on (--env-bounds fail ends the run)."
            trace = f"\n{trouble.traceback.rstrip()}" if trouble.traceback else ""
            warn(f"{trouble.text}{follows}{trace}")
            with suppress(OSError):  # a disk in trouble is told of elsewhere
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {trouble.text}{trace}\n")
