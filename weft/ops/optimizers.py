"""Optimisers by name, behind a bound on the gradient's norm.

Adam and the bound are those of optax, with its states, written so that they pass over a network's numbers less often:
what is the same for all of them is found once, and one division for each is left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from weft.core.types import Array, Tree


def adam(rate: optax.Schedule, first: float = 0.9, second: float = 0.999, eps: float = 1e-5) -> Any:
    """Adam (Kingma and Ba, arXiv 1412.6980), with the two corrections for its start as one factor (its section 2)."""

    def init(params: Tree) -> optax.ScaleByAdamState:
        mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))  # buffers of their own: to be donated
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), mean, square)

    def update(gradient: Tree, state: Any, params: Tree = None) -> tuple[Tree, optax.ScaleByAdamState]:
        count = optax.safe_increment(state.count)
        mean = jax.tree.map(lambda m, g: first * m + (1 - first) * g, state.mu, gradient)
        square = jax.tree.map(lambda v, g: second * v + (1 - second) * (g * g), state.nu, gradient)
        grown = jnp.sqrt(1 - second**count)  # of what the root will be
        factor = grown / (1 - first**count)
        changes = jax.tree.map(lambda m, v: factor * m / (jnp.sqrt(v) + eps * grown), mean, square)
        return changes, optax.ScaleByAdamState(count, mean, square)

    return optax.chain(optax.GradientTransformation(init, update), optax.scale_by_learning_rate(rate))


def bounded_by(norm: float) -> optax.GradientTransformation:
    """Gradients whose norm is above ``norm`` are shrunk to it."""

    def update(gradient: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
        factor = jnp.minimum(1.0, norm / length)
        return jax.tree.map(lambda g: g * factor, gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


LARGE_PARAMS = 50_000
"""Params of a network above which its leaves are left apart."""
OPTIMIZERS: dict[str, Callable[[optax.Schedule], optax.GradientTransformation]] = {
    "adam": adam,
    "radam": partial(optax.radam, eps=1e-5),
    "rmsprop": partial(optax.rmsprop, decay=0.99, eps=1e-5),
}


def bounded_optimizer(
    name: str, rate: Array | float, max_norm: float | None, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """An optimiser of ``OPTIMIZERS`` with the learning rate ``rate`` (``[]``), behind a bound on the gradient's norm.

    None: no bound. With ``weight_decay`` each step also takes that share of the rate off the weights (Loshchilov and
    Hutter, arXiv 1711.05101). All params of a small network are treated as one vector (``as_vector``).
    """
    rule = OPTIMIZERS[name](lambda updates: rate)
    parts = [] if max_norm is None else [bounded_by(max_norm)]
    parts.append(rule)
    if weight_decay:
        parts.append(optax.add_decayed_weights(-weight_decay * rate))
    chained = optax.chain(*parts)

    def update(gradient: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        vector, back = as_vector(summed_apart(gradient))
        changes, state = chained.update(vector, state, None if params is None else as_vector(params)[0])
        return back(changes), state

    return optax.GradientTransformation(lambda params: chained.init(as_vector(params)[0]), update)


def as_vector(tree: Tree) -> tuple[Tree, Callable[[Tree], Tree]]:
    """A small network's numbers as one vector, which takes few operations; and the way back, for such vectors.

    A large network is left as it is: on a CPU, cutting and joining its numbers takes as long as what is done with them,
    and where long vectors happen to lie in memory made a learn call of SAC take 7.5 ms or 20 ms.
    """
    if sum(leaf.size for leaf in jax.tree.leaves(tree)) > LARGE_PARAMS:
        return tree, lambda tree: tree
    return ravel_pytree(tree)


def summed_apart(gradient: Tree) -> Tree:
    """``gradient``, of which biases are found, on a GPU, before they are joined with others to a vector.

    The gradient of a bias is a sum over a batch. XLA makes it a part of the kernel that joins, where one thread adds up
    all rows of a number: with 128 rows, and what led to each of them, 30 µs on an H200, for a bias of 2.
    """
    leaves, structure = jax.tree.flatten(gradient)
    if jax.default_backend() == "cpu" or len(leaves) == 1:
        return gradient
    apart = [leaf if leaf.ndim > 1 else jax.lax.optimization_barrier(leaf) for leaf in leaves]
    return jax.tree.unflatten(structure, apart)
