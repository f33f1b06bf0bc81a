"""The second half of learn: gradients in, params out. One replica: it owns the params."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weft.core.replicas import mean_over_replicas
from weft.core.types import Array, Gradients, TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph
from weft.runtimes.stage import Finite, Ran, Stage


class ApplyRole:
    """How apply runs."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """One update; gradients that are not finite change nothing."""
        algorithm: Algorithm = fragment.code

        def run(state: TrainState, inputs: dict[str, Gradients], params: dict[str, Tree], given: Array) -> Ran:
            (message,) = mean_over_replicas(tuple(inputs.values()))
            learned, rewards = message.learned == 1.0, message.rewards == 1.0
            new = algorithm.apply(state, message.tree)
            kept = jax.tree.map(lambda now, then: jnp.where(learned, now, then), new.params, state.params)
            return Ran(new._replace(params=kept), {}, message.metrics, Finite(learned, rewards))

        return Stage(algorithm.init, run, lambda state: state.params)

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker."""
        from weft.runtimes.roles.apply_side import ApplySide

        return ApplySide(task, side)


APPLY = ApplyRole()
