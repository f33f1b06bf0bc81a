"""One lane of inference: the unroll that is being built, and the ends that it has of its channels."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from weft.core.trees import tree_leaves, tree_map
from weft.core.types import Timestep, Tree
from weft.runtimes.hosted.rolling import LaneCheckpoint
from weft.runtimes.hosted.unroll_buffer import UnrollBuffer
from weft.runtimes.workers.acting import ActingContext
from weft.runtimes.workers.unroll_writer import UnrollWriter
from weft.streams.channel import Reader, Stamp, Writer


class State(Enum):
    """What a lane waits for."""

    SLOT = "slot"  # room for its next unroll, and in lockstep its params
    TIMESTEP = "timestep"  # its environments
    ACT = "act"  # the next batch, for an action
    VALUE = "value"  # the next batch, for the value of what follows its unroll
    PENDING = "pending"  # the batch that it is in
    REPLY = "reply"  # room for its action


class LaneState:
    """One lane's unroll as it is built. Only ``ActSide`` changes it."""

    def __init__(
        self,
        acting: ActingContext,
        timesteps: Reader,
        actions: Writer,
        unrolls: UnrollWriter,
        sent_words: Any,
        *,
        number: int = 0,
        in_place: bool = False,
    ) -> None:
        self.number = number  # among the lanes of its side
        self.lane, self.timesteps, self.actions, self.unrolls = unrolls.lane, timesteps, actions, unrolls
        self.sent_words = sent_words  # of the wire of actions, in the account
        self.in_place = in_place  # its environments write into the unroll's slot
        self.state = State.SLOT
        self.buffer: UnrollBuffer | None = None
        self.t = -1  # the row that is filled; -1: none
        self.rolled = False  # row 0 of the next unroll is the last row of ``buffer``
        self.version = -1
        self.keys = acting.keys_of(self.lane)
        self.carry: Tree = acting.start_carry(self.lane.rows)
        self.drawn: Tree = None
        self.noise: list[Any] = []  # leaves [T, rows, ...], on the host
        self.answers = Stamp(-1)  # which timestep the next action answers
        self.action: Any = None
        self.env_life: int | None = None
        self.episode_return = np.zeros(self.lane.rows, np.float64)
        self.episode_length = np.zeros(self.lane.rows, np.int64)
        self._rows: dict[int, list[list[Any]]] = {}  # for each buffer, the leaves of each row
        self._kept: dict[int, list[list[Any]]] = {}  # likewise what is kept of each step: action, and extras
        self._stood: tuple[LaneCheckpoint, Any] | None = None

    def stand(self, where: tuple[LaneCheckpoint, Any] | None) -> None:
        """Go on from where the lane stood; the second part says which of its environments could be brought back."""
        self._stood = where

    def begin(self, start: Tree, *, midway: bool) -> None:
        """Environments begin: anew, or, the first time, from where the lane stood. Their timestep is in row 0.

        ``midway``: they did not; it is act that is new, and what their episodes gave before that is not known.
        """
        self.carry, stood = start, self._stood
        self.episode_return[:], self.episode_length[:] = 0, 0
        if midway:
            self.episode_return[~self._row_seen(0).first] = np.nan
        self._stood = None
        if stood is not None:
            checkpoint, kept = stood
            self.carry = checkpoint.carry
            self.episode_return[:], self.episode_length[:] = checkpoint.episode_return, checkpoint.episode_length
            for place, then in zip(tree_leaves(self._row_seen(0)), tree_leaves(checkpoint.timestep), strict=True):
                np.copyto(place, then, where=kept.reshape((-1, *[1] * (place.ndim - 1))))

    def checkpoint(self) -> LaneCheckpoint | None:
        """Where the lane stands; None unless it has sent an unroll and waits to begin the next."""
        if self.state is not State.SLOT or not self.rolled or self.buffer is None:
            return None
        timestep = tree_map(np.copy, self._row_seen(-1))
        return LaneCheckpoint(self.carry, timestep, self.episode_return, self.episode_length)

    def _row_seen(self, t: int) -> Timestep:
        assert self.buffer is not None
        return self.buffer.outs[t]._replace(final_observation=None)

    def row(self, t: int) -> list[Any]:
        """The leaves of row t of the buffer, in the channel's order."""
        assert self.buffer is not None
        known = self._rows.get(id(self.buffer))
        if known is None:
            known = self._rows[id(self.buffer)] = [tree_leaves(out) for out in self.buffer.outs]
        return known[t]

    def kept(self, t: int) -> list[Any]:
        """Where what act gave at step t is kept: the action, and the extras' leaves in JAX's order."""
        assert self.buffer is not None
        known = self._kept.get(id(self.buffer))
        if known is None:
            block = self.buffer.block
            leaves = [block.action, *tree_leaves(block.extras)]
            known = self._kept[id(self.buffer)] = [[leaf[s] for leaf in leaves] for s in range(self.buffer.length)]
        return known[t]
