"""A store that has everything from the start: steps that were recorded, and nothing that comes later.

It is how an algorithm learns offline in the graph of any other: what act does meanwhile shows how good the policy is,
and is not kept. The steps are put into the store's state by a call to the host, when the state is made: as constants of
a program they would be compiled into it, which takes 12 s for 200 MB where the call takes 0.2 s. They lie in the memory
of the device, once for each seed, and in every checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.types import Array, Metrics, Transitions, Tree
from weft.ops.rewards import reshaped
from weft.replay.uniform import part_of


class Steps(NamedTuple):
    """``N`` steps on ``R`` observations; what a step led to is the row after its own. NumPy, or on the device."""

    observation: Tree  # [R, ...]
    row: Array  # [N] int32: of what the policy saw
    action: Array  # [N, ...]
    reward: Array  # [N] float32
    terminated: Array  # [N] bool
    action_mask: Array | None = None  # [R, choices] bool


class Fixed(NamedTuple):
    """The state of a fixed replay."""

    steps: Steps
    key: Array  # [] of its draws
    drawn: Array  # [] int32: batches so far


@dataclass(frozen=True, eq=False)
class FixedReplay:
    """Gives batches of ``steps``, drawn uniformly with replacement. Its state is a ``Fixed``."""

    steps: Steps  # NumPy
    batch: int = 256  # steps in a batch
    updates: int = 64  # batches for each unroll that act brings
    discount: float = 0.99
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    def draws(self, unroll: Any) -> int:
        """Batches for each unroll."""
        return self.updates

    def fills(self, unroll: Any) -> int:
        """There is something to draw from the start."""
        return 0

    def of_learners(self, learners: int) -> Self:
        """What one of so many learners has: it draws its part of every batch from all steps."""
        return replace(self, batch=part_of(self.batch, learners))

    def share(self, shards: int) -> Self:
        """Each shard has all steps: all are drawn from alike."""
        return self

    def init(self, unroll: Any, key: Array) -> Tree:
        """All steps, brought from the host when this runs."""
        arrays = jax.tree.map(np.asarray, self.steps)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
        return Fixed(jax.pure_callback(lambda: arrays, shapes), key, jnp.int32(0))

    def insert(self, held: Tree, unroll: Any) -> Tree:
        """Nothing is kept of what act brings."""
        return held

    def draw(self, held: Tree) -> tuple[Tree, Transitions]:
        """A batch, drawn with replacement."""
        steps: Steps = held.steps
        position = jax.random.randint(jax.random.fold_in(held.key, held.drawn), (self.batch,), 0, len(steps.row))
        row = steps.row[position]
        mask = steps.action_mask
        batch = Transitions(
            observation=jax.tree.map(lambda x: x[row], steps.observation),
            action=steps.action[position],
            reward=reshaped(steps.reward[position], self.reward_scale, self.reward_clip),
            discount=jnp.where(steps.terminated[position], 0.0, jnp.float32(self.discount)),
            following=jax.tree.map(lambda x: x[row + 1], steps.observation),
            weight=jnp.ones(self.batch, jnp.float32),
            ids=jnp.stack([position, jnp.zeros_like(position)], axis=-1),
            action_mask=None if mask is None else mask[row],
            following_mask=None if mask is None else mask[row + 1],
        )
        return held._replace(drawn=held.drawn + 1), batch

    def feedback(self, held: Tree, message: Tree) -> Tree:
        """Nothing depends on what learn says of a batch."""
        return held

    def waits(self, held: Tree) -> Array:
        """[] int32: none."""
        return jnp.zeros((), jnp.int32)

    def figures(self, held: Tree) -> Metrics:
        """Steps that it has, and how many were drawn."""
        return {
            "held": jnp.float32(len(held.steps.row)),
            "sampled": held.drawn * jnp.float32(self.batch),
        }
