"""A replay in the host's memory: observations in NumPy arrays, all else in small programs on the CPU.

Observations are nearly all of a replay's bytes, and only ever copied. XLA's CPU programs copy an unroll of images at a
fifth of the speed of memory; NumPy writes it into its slot as it comes, and takes the rows of a batch straight to where
they are wanted. What is computed (returns, priorities, which steps are drawn) is the pure replay's own code, so that
the two homes give the same bits.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.specs import FrameStack
from weft.core.types import Array, Finals, Transitions, Tree, Unroll
from weft.replay.frames import joined, newest, rows_of, split
from weft.replay.prioritised import PrioritisedReplay
from weft.replay.returns import Place
from weft.replay.uniform import UniformReplay

KNOWN: tuple[type, ...] = (UniformReplay, PrioritisedReplay)
"""Whose code can do without observations; a class derived from one may want them."""


class HostReplay:
    """A replay for unrolls of the shapes of ``unroll``; it begins with ``held``, which it copies, or empty."""

    def __init__(self, replay: UniformReplay, unroll: Unroll, key: Array, held: Tree | None = None) -> None:
        self._replay = replay
        cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(cpu):
            empty = jax.jit(lambda key: replay.init(_without_observations(unroll), key))
            bare = empty(key) if held is None else held
        slots, length, frames = bare.ring.slots, unroll.reward.shape[0], replay.frames
        finals = 0 if unroll.finals is None else unroll.finals.step.shape[0]
        self._length, self._slots, self._frames = length, slots, frames
        if held is None:  # memory that is not written yet costs nothing
            rows = (slots, length + 1 + finals if frames is None else rows_of(frames, length, finals))
            self._rows = jax.tree.map(lambda x: np.zeros(rows + _row_shape(x, frames), x.dtype), unroll.observation)
            lanes = (bare.ring.newest.shape[0],)
            self._last = jax.tree.map(lambda x: np.zeros(lanes + x.shape, x.dtype), unroll.last_observation)
        else:
            self._rows, self._last = jax.tree.map(np.array, (held.ring.observation, held.ring.last))
        # Views: every row by one number.
        self._flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[3:])), self._rows)
        self._inserted = int(bare.ring.inserted)
        self._held = jax.device_put(bare._replace(ring=bare.ring._replace(observation=None, last=None)), cpu)
        self._insert = jax.jit(replay.insert, donate_argnums=0)
        self._draw = jax.jit(self._drawn, static_argnums=1, donate_argnums=0)
        self._tell = jax.jit(self._told, donate_argnums=0)
        self._figures = jax.jit(replay.figures)

    @property
    def state(self) -> Tree:
        """As the pure replay has it; views of its memory."""
        return self._held._replace(ring=self._held.ring._replace(observation=self._rows, last=self._last))

    def insert(self, unroll: Unroll, lane: int = 0, same: Any = True) -> None:
        """Keep an unroll of NumPy arrays, which are the caller's again afterwards."""
        slot, length = self._inserted % self._slots, self._length
        same = np.array(np.broadcast_to(same, unroll.reward.shape[1]))
        for rows, last, now, after in zip(
            *(jax.tree.leaves(x) for x in (self._rows, self._last, unroll.observation, unroll.last_observation)),
            strict=True,
        ):
            same &= (last[lane] == now[0]).reshape((len(same), -1)).all(-1)
            if self._frames is None:
                rows[slot, :length], rows[slot, length] = now, after
            else:
                k = self._frames.count
                rows[slot, :k] = np.moveaxis(split(now[0], self._frames, 1), 1, 0)
                rows[slot, k : k + length - 1] = newest(now[1:], self._frames, 2)
                rows[slot, k + length - 1] = newest(after, self._frames, 1)
            last[lane] = after
        finals = unroll.finals
        if finals is not None and np.any(finals.step >= 0):
            for rows, now in zip(jax.tree.leaves(self._rows), jax.tree.leaves(finals.observation), strict=True):
                if self._frames is None:
                    rows[slot, length + 1 :] = now
                else:
                    begins = self._frames.count + length
                    rows[slot, begins : begins + len(now)] = newest(now, self._frames, 2)
        bare = jax.tree.map(np.array, _without_observations(unroll))  # the program may still run when this returns
        self._held = self._insert(self._held, bare, same, np.int32(lane))
        self._inserted += 1

    def draw(self, into: Transitions) -> None:
        """Draw as many batches as ``into`` has room for, ``[K, N, ...]`` NumPy arrays."""
        self._held, batches = self._draw(self._held, into.reward.shape[0])
        for place, at in ((into.observation, batches.observation), (into.following, batches.following)):
            row = self._row(at)
            for out, rows in zip(jax.tree.leaves(place), jax.tree.leaves(self._flat), strict=True):
                if self._frames is None:
                    np.take(rows, row, axis=0, out=out, mode="clip")  # other modes copy first
                else:
                    self._take_stacks(rows, row, out)
        small = [each._replace(observation=None, following=None) for each in (into, batches)]
        for out, value in zip(*map(jax.tree.leaves, small), strict=True):
            np.copyto(out, np.asarray(value))

    def _take_stacks(self, rows: Any, row: Any, out: Any) -> None:
        """Frames in ``row`` (``[K, N, k]``) to the observations that they make: straight there, where they lie so."""
        assert self._frames is not None
        if self._frames.axis == 0 and out.flags.c_contiguous:
            np.take(rows, row, axis=0, out=out.reshape((*row.shape, *rows.shape[1:])), mode="clip")
        else:
            np.copyto(out, joined(np.take(rows, row, axis=0), self._frames, row.ndim - 1))

    def feedback(self, messages: Tree) -> None:
        """Take in what learn tells of batches: ``[K, ...]`` NumPy arrays, which are the caller's again afterwards."""
        self._held = self._tell(self._held, jax.tree.map(np.array, messages))

    def _drawn(self, held: Tree, count: int) -> tuple[Tree, Transitions]:
        return jax.lax.scan(lambda held, _: self._replay.draw(held), held, None, count)

    def _told(self, held: Tree, messages: Tree) -> Tree:
        return jax.lax.scan(lambda held, message: (self._replay.feedback(held, message), None), held, messages)[0]

    def waits(self) -> int:
        """Unrolls from now on that are only kept."""
        return int(self._replay.waits(self._held))

    def figures(self) -> dict[str, float]:
        """What it counts."""
        return {name: float(np.asarray(value)) for name, value in self._figures(self._held).items()}

    def _row(self, at: Place) -> Any:
        slot, step, env = (np.asarray(x) for x in at)
        rows, envs = jax.tree.leaves(self._rows)[0].shape[1:3]
        return (slot.astype(np.int64) * rows + step) * envs + env


def _row_shape(x: Any, frames: FrameStack | None) -> tuple[int, ...]:
    """Of a row of all environments, from the shape of an unroll's observations."""
    if frames is None:
        return tuple(x.shape[1:])
    return tuple(jax.eval_shape(lambda x: newest(x, frames, 2), x).shape[1:])


def _without_observations(unroll: Unroll) -> Unroll:
    """What the pure replay reads of an unroll besides."""
    nothing: Any = None
    finals = unroll.finals
    return unroll._replace(
        observation=None,
        extras={},
        bootstrap=nothing,
        carry=(),
        last_observation=None,
        finals=None if finals is None else Finals(None, finals.step),
    )
