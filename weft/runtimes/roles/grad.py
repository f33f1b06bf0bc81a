"""The first half of learn: a batch in, gradients out, for the one apply that owns the params."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weft.core.types import Array, Gradients, Metrics, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph
from weft.runtimes.stage import Ran, Stage


class GradRole:
    """How grad runs."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """The gradients of one batch, with what was seen of it."""
        algorithm: Algorithm = fragment.code
        (port,) = fragment.outputs

        def run(state: Tree, inputs: dict[str, Tree], params: dict[str, Tree], given: Array) -> Ran:
            (batch,), (newest,) = inputs.values(), params.values()
            gradients, metrics = algorithm.grad(newest, batch)
            return Ran(state, {port.name: [with_flags(gradients, metrics, given)]})

        return Stage(lambda key: (), run)

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker."""
        from weft.runtimes.roles.grad_side import GradSide

        return GradSide(task, side)


def with_flags(gradients: Tree, metrics: Metrics, given: Array) -> Gradients:
    """A message for apply: gradients, metrics, and whether all numbers and the rewards as given were finite."""
    values = {name: jnp.asarray(metrics[name], jnp.float32) for name in sorted(metrics)}
    finite = jnp.isfinite(given + sum(values.values()))
    for leaf in jax.tree.leaves(gradients):
        finite &= jnp.isfinite(leaf).all()
    return Gradients(gradients, values, finite.astype(jnp.float32), jnp.isfinite(given).astype(jnp.float32))


GRAD = GradRole()
