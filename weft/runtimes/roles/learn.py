"""The role of a learner: a batch in, params out. Its replicas are one program that averages gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weft.core.replicas import mean_over_replicas
from weft.core.types import Array, Metrics, TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph
from weft.runtimes.stage import Finite, Ran, Stage


class LearnRole:
    """How a learner runs."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """One learn call; what is not finite does not reach the params."""
        algorithm: Algorithm = fragment.code
        told = [s.name for s in graph.out_of(fragment.name) if s.feedback]

        def run(state: TrainState, inputs: dict[str, Tree], params: dict[str, Tree], given: Array) -> Ran:
            (batch,) = inputs.values()
            new, metrics, feedback = algorithm.learn_and_tell(state, batch)
            ran = refuse_bad(state, new, metrics, given)
            return ran._replace(messages={name: [feedback] for name in told})

        return Stage(algorithm.init, run, lambda state: state.params)

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker: what it learns from comes from lanes, or is drawn by a store elsewhere."""
        if any(wire.drawn for wire in task.blueprint.into(side.index)):
            from weft.runtimes.roles.drawn_side import DrawnSide

            return DrawnSide(task, side)
        from weft.runtimes.roles.learn_side import LearnSide

        return LearnSide(task, side)


def refuse_bad(before: TrainState, new: TrainState, metrics: Metrics, given: Array) -> Ran:
    """The new state, but with the params of before where a reward or a metric is not finite."""
    # A sum is finite only if all its parts are; so is a mean over replicas. Bad data must not reach the weights.
    finite = jnp.isfinite(given + mean_over_replicas(sum(jnp.asarray(m, jnp.float32) for m in metrics.values())))
    params = jax.tree.map(lambda now, then: jnp.where(finite, now, then), new.params, before.params)
    return Ran(new._replace(params=params), {}, metrics, Finite(finite, jnp.isfinite(given)))


LEARN = LearnRole()
