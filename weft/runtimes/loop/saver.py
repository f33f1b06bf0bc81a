"""Writes checkpoints beside training: a thread for each, one at a time."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import jax
import numpy as np

from weft.core.errors import CheckpointError, WeftError
from weft.core.types import Tree
from weft.runtimes.loop.engine import is_key
from weft.services import checkpoints
from weft.services.checkpoints import Packed, Retention
from weft.services.mirror import Mirror
from weft.services.run_folder import RunFolder
from weft.services.tenure import Tenure


class Written(NamedTuple):
    """How a write ended: ``error`` is None where the checkpoint is on the disk; ``note`` is what else happened."""

    step: int
    env_steps: int
    error: Exception | None
    note: str


class Saver:
    """Writes into a run's folder, so that training goes on meanwhile. One thread uses it; made once the run has begun.

    A folder that was removed is made again, and one that became another's is left alone (``services.tenure``).
    """

    def __init__(self, folder: RunFolder, keep: Retention, mirror: Mirror | None = None) -> None:
        self._folder, self._keep, self._mirror = folder, keep, mirror
        self._tenure = Tenure(folder)
        self._thread: threading.Thread | None = None
        self._written: Written | None = None

    @property
    def busy(self) -> bool:
        """Whether a write is under way, or its end was not taken yet."""
        return self._thread is not None

    def write(self, packed: Packed, env_steps: int) -> None:
        """Begin to write; the end of the one before must have been taken."""
        assert self._thread is None
        # As a daemon: a second interrupt leaves at once, and what was half written is never taken for a checkpoint.
        self._thread = threading.Thread(target=self._write, args=(packed, env_steps), name="weft-save", daemon=True)
        self._thread.start()

    def ended(self, *, wait: bool = False) -> Written | None:
        """How the write under way ended, told once; None where there is none, or it goes on and ``wait`` is False."""
        if self._thread is None or (self._thread.is_alive() and not wait):
            return None
        self._thread.join()
        written, self._thread, self._written = self._written, None, None
        return written

    def _write(self, packed: Packed, env_steps: int) -> None:
        error: Exception | None = None
        note = ""
        try:
            note = self._tenure.confirm()
            checkpoints.write(self._folder.checkpoints, packed, self._keep)
            if self._mirror is not None and (trouble := self._mirror.tried(self._folder.path)):
                note = f"{note}. {trouble}" if note else trouble
        except OSError as failed:
            words = f"cannot use {self._folder.path}: {failed.strerror or failed}. Make it writable, or bring it back."
            error = CheckpointError(words)
        except (WeftError, MemoryError, RuntimeError) as failed:  # the last two: a device or memory gave out
            error = failed
        self._written = Written(packed.step, env_steps, error, note)


def on_host(tree: Tree) -> Tree:
    """A copy in this process's memory, which training neither changes nor donates. Waits for the device."""
    leaves = jax.tree.leaves(tree)
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and not is_key(leaf):
            leaf.copy_to_host_async()  # all copies under way before the first is waited for
    return jax.tree.map(_copied, tree)


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and is_key(leaf):
        words = jax.numpy.array(jax.random.key_data(leaf), copy=True)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    return np.array(leaf, copy=True) if isinstance(leaf, jax.Array | np.ndarray) else leaf
