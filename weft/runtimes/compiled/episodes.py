"""Episodes as a compiled rollout counts them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from weft.core.types import Array


class Running(NamedTuple):
    """The episodes that are going on, or, for steps that ended one, that episode: ``[B]``, or ``[T, B]``."""

    returns: Array  # float32
    lengths: Array  # int32

    def step(self, reward: Array) -> Running:
        """One step further. Of several agents, ``[B, A]``, their mean counts."""
        return Running(self.returns + (reward.mean(-1) if reward.ndim > 1 else reward), self.lengths + 1)

    def restart(self, ended: Array) -> Running:
        """Nothing so far where an episode has ``ended``."""
        return Running(jnp.where(ended, 0.0, self.returns), jnp.where(ended, 0, self.lengths))


class EpisodeSlices(NamedTuple):
    """The episodes that ended at each step of an unroll, added up over the environments."""

    episodes: Array  # [T] int32
    return_sum: Array  # [T] float32
    length_sum: Array  # [T] int32
    cut_again: Array  # [] int32: environments that were cut twice in an unroll, against what their spec says


def slices_of(running: Running, ended: Array) -> EpisodeSlices:
    """The slices of an unroll: ``running`` as it was after each step, which episodes ``ended`` there; ``[T, B]``."""
    return EpisodeSlices(
        episodes=ended.sum(-1, dtype=jnp.int32),
        return_sum=jnp.where(ended, running.returns, 0.0).sum(-1),
        length_sum=jnp.where(ended, running.lengths, 0).sum(-1, dtype=jnp.int32),
        cut_again=jnp.zeros((), jnp.int32),
    )
