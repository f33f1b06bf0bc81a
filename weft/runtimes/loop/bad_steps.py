"""Learn steps that met a number that is not finite: refused, their batches kept for inspection, three in a row an end.

A refused step leaves params and optimizer as they were before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from weft.core.types import Tree

IN_A_ROW = 3
"""Refused learn steps, one after the other, that end a run."""

MAX_BATCHES = 10
"""Batches that are kept of one run."""


class BadSteps:
    """Counts refused learn steps of a run, of each seed by itself."""

    def __init__(self) -> None:
        self._in_a_row: Any = 0
        self.total = 0

    def take(self, learned: np.ndarray[Any, Any]) -> tuple[int, int]:
        """``learned`` is ``[calls]`` or ``[calls, seeds]`` bool; how many were refused now, and the longest row yet.

        The longest row is of those that have reached into these calls.
        """
        longest = 0
        for call in learned:
            self._in_a_row = np.where(call, 0, np.asarray(self._in_a_row) + 1)
            longest = max(longest, int(np.max(self._in_a_row)))
        refused = int(np.count_nonzero(~learned))
        self.total += refused
        return refused, longest


def keep_batch(folder: Path | None, learn_step: int, batch: Tree) -> None:
    """Write what a refused learn step was given to ``learn-step-N.npz`` in ``folder``, its leaves by their paths.

    Does nothing where there is no folder, or there are enough of them; a disk in trouble costs the file alone.
    """
    try:
        if folder is None or (folder.exists() and len(list(folder.iterdir())) >= MAX_BATCHES):
            return
        folder.mkdir(parents=True, exist_ok=True)
        leaves = jax.tree_util.tree_flatten_with_path(batch)[0]
        np.savez(
            folder / f"learn-step-{learn_step:09d}.npz",
            allow_pickle=False,
            **{jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves},
        )
    except OSError:
        return
