"""What every algorithm that learns from a replay shares: the replay made from fields, and the graph with it.

An algorithm derives from ``Replayed`` and defines its network, how it acts, and ``learn_and_tell``; ``tell`` makes of
the errors of a batch what a prioritised replay is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from weft.algorithms.ranges import check_ranges
from weft.core.types import Array, Metrics, Priorities, TrainState, Transitions, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import off_policy
from weft.replay import PrioritisedReplay, UniformReplay


@dataclass(frozen=True)
class Replayed(Algorithm):
    """The fields that the replay is made from."""

    unroll: int = 16  # steps of each environment that are stored at a time, T
    n_step: int = 1
    prioritised: bool = False
    priority_power: float = 0.6  # prioritised: 0 draws every step alike, 1 in proportion to its error
    importance_power: float = 0.4  # prioritised: how far weights correct for that at first; 1 at the run's end
    capacity: int = 100_000  # steps that are kept
    batch: int = 64  # steps in a batch
    samples_per_insert: float = 8.0  # how often a step is drawn on average
    learning_begins: int = 1_000  # steps that are kept before the first batch is drawn
    discount: float = 0.99
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    @property
    def replay(self) -> UniformReplay:
        """What unrolls are kept in."""
        settings: dict[str, Any] = {
            "capacity": self.capacity,
            "batch": self.batch,
            "samples_per_insert": self.samples_per_insert,
            "begin": self.learning_begins,
            "n_step": self.n_step,
            "discount": self.discount,
            "reward_scale": self.reward_scale,
            "reward_clip": self.reward_clip,
        }
        if not self.prioritised:
            return UniformReplay(**settings)
        return PrioritisedReplay(
            **settings,
            alpha=self.priority_power,
            beta=self.importance_power,
            beta_draws=self.spec.learn_steps,
        )

    def graph(self) -> Graph:
        """env ⇄ act → replay → learn → act."""
        return off_policy(self, self.replay)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        self.replay.of_learners(self.spec.replicas).check(type(self).__name__, self.unroll, self.spec.envs)

    def learn(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics]:
        """One learn call, without what the replay is told of it."""
        return self.learn_and_tell(state, batch)[:2]

    def tell(self, batch: Transitions, error: Array) -> Tree:
        """What the replay is told of a batch, of which these are the errors, ``[N]``."""
        return Priorities(batch.ids, jnp.abs(error)) if self.prioritised else ()
