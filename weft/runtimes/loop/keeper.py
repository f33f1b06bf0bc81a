"""Keeps a run's state safe: what is saved, when, and what a run goes on from.

begins                     from the newest checkpoint that is whole and its own; never silently from scratch
every now and then         the state is copied to memory and written from there, while training goes on
a write fails              training goes on, the user is told, the next is tried in time
the folder is removed      it is made again with the next write, and the user is told
a worker takes the state   the last state that was saved is still in memory; from then on it saves more often
ends                       waits until the last state is on the disk, and fails where that cannot be
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from weft.core.errors import CheckpointError
from weft.core.types import Tree
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.saver import Saver, on_host
from weft.runtimes.prepare.config import Prepared, Settings
from weft.services import checkpoints
from weft.services.checkpoints import Label, Retention
from weft.services.mirror import Mirror
from weft.services.progress_made import refuse_lost_checkpoints
from weft.services.run_folder import RunFolder

MIN_PAUSE = 1.0
"""The least seconds between two saves, however often the state is lost."""

Kept = tuple[Tree, dict[str, Any]]
"""A state as the loop keeps it: the engine's tree, and a document with the engine's and the counters."""


class Keeper:
    """Saves and brings back the state of one execution.

    ``warn`` is told what a user should know, ``on_saved`` is called after a write that succeeded; the loop sets both.
    """

    def __init__(self, prepared: Prepared, settings: Settings, folder: RunFolder, mirror: Mirror | None = None) -> None:
        self._mirror = mirror
        self.warn: Callable[[str], None] = lambda text: None
        self.on_saved: Callable[[], None] = lambda: None
        self.saved_steps = 0  # learn steps in the newest checkpoint; 0 where there is none
        self._folder, self._interval = folder, settings.checkpoint_seconds
        self._began_at = self._asked_at = time.monotonic()
        self._losses, self._cost = 0, 0.1  # how often the state was lost; seconds that the last save took from training
        self._every = settings.keep_every
        self._retention = Retention(settings.keep_checkpoints, settings.keep_best, settings.keep_every)
        self._saver: Saver | None = None
        self._in_workers = prepared.in_workers
        self._latest: Kept | None = None  # of a run in workers, which may lose its state
        self._tried_at, self._tried_env_steps = time.monotonic(), 0
        self._failing = False  # the last attempt to save failed

    def restore(self, template: Tree) -> Kept | None:
        """The state to begin from: the newest whole checkpoint of this run; None for a new run.

        Raises CheckpointError where there are checkpoints and none can be used, RunError where there must have been.
        """
        found = checkpoints.load_latest(self._folder.checkpoints, template, self.warn, run=self._folder.id)
        if found is None:
            lost = refuse_lost_checkpoints(self._folder) if self._folder.resumed else ""
            if lost:
                self.warn(lost)
            return None
        tree, document, _ = found
        self.saved_steps = int(document["counters"]["learn_steps"])
        self._tried_env_steps = int(document["counters"]["env_steps"])
        self._latest = (tree, document) if self._in_workers else None
        return tree, document

    def latest(self, template: Tree) -> Kept | None:
        """The last state that was saved, from memory where it is there; None where nothing was saved yet."""
        if self._latest is not None:
            return self._latest
        found = checkpoints.load_latest(self._folder.checkpoints, template, self.warn, run=self._folder.id)
        return None if found is None else found[:2]

    def open(self) -> None:
        """The run has begun, and its folder tells what it does: from now on it may be saved."""
        self._saver = Saver(self._folder, self._retention, self._mirror)

    def is_due(self, env_steps: int) -> bool:
        """Whether it is time to save again, or a stretch of ``keep_every`` begins; not while one is being written."""
        self._asked_at = time.monotonic()
        late = self._asked_at - self._tried_at > self.pause
        begins = self._every > 0 and env_steps // self._every > self._tried_env_steps // self._every
        return (late or begins) and (self._saver is None or not self._saver.busy)

    def lost(self) -> None:
        """A worker took the state with it: what was learned since the last save is gone."""
        self._losses += 1

    @property
    def pause(self) -> float:
        """Seconds from one save to the next: as was asked for, and less where the state is lost again and again.

        Saving and what is learned twice cost least together at the root of 2 · the cost of a save · the time between
        two losses (J. W. Young, 1974).
        """
        if not self._losses:
            return self._interval
        between = (time.monotonic() - self._began_at) / self._losses
        return min(self._interval, max(MIN_PAUSE, math.sqrt(2.0 * self._cost * between)))

    def save(self, tree: Tree, document: dict[str, Any], counters: Counters) -> None:
        """Copy the state, and begin to write it; training may go on at once. A failure is warned of, now or later.

        With an interval of 0 it waits until the checkpoint is on the disk.
        """
        self.look(wait=True)
        self._tried_at, self._tried_env_steps = time.monotonic(), counters.env_steps
        try:
            self._begin(tree, document, counters)
        except CheckpointError as error:
            self._failed(error)
        self.look(wait=not self._interval)
        self._cost = time.monotonic() - self._asked_at

    def save_at_last(self, tree: Tree, document: dict[str, Any], counters: Counters) -> None:
        """Save, and wait until it is on the disk. Raises CheckpointError where it cannot be."""
        self.look(wait=True)
        self._begin(tree, document, counters)
        if (error := self._look(wait=True)) is not None:
            raise error

    def look(self, *, wait: bool = False) -> None:
        """Tell how the write under way ended, if it did; with ``wait``, once it has."""
        if (error := self._look(wait)) is not None:
            self._failed(error)

    def _begin(self, tree: Tree, document: dict[str, Any], counters: Counters) -> None:
        if self._in_workers:
            self._latest = tree, document  # workers have sent it: it is nobody else's
        else:
            tree = on_host(tree)
        mean = counters.return_mean
        label = Label(
            self._folder.id,
            counters.env_steps,
            mean if math.isfinite(mean) else None,
            min(window.total for window in counters.windows),
        )
        assert self._saver is not None
        self._saver.write(checkpoints.pack(counters.learn_steps, tree, document, label), counters.env_steps)

    def _look(self, wait: bool) -> Exception | None:
        written = None if self._saver is None else self._saver.ended(wait=wait)
        if written is None:
            return None
        if written.note:
            self.warn(written.note)
        if written.error is None:
            self.saved_steps = written.step
            self.on_saved()
            if self._failing:
                self.warn(f"saving works again: {written.env_steps:,} env steps are safe")
            self._failing = False
        return written.error

    def _failed(self, error: Exception) -> None:
        self._failing = True
        self.warn(f"{error} Training goes on; saving is tried again in {self._interval:g} s.")
