"""The product of a dense layer, whose gradient by the weights is as quick as the product itself on a CPU.

That gradient is ``x^T g``, and XLA's fast kernels for a CPU want the first factor row by row. XLA joins a transposition
with the product that reads it, and then calls Eigen, which takes twice as long as the product did for 2,048 rows and
64 x 64 weights, and eight times as long for 256 rows and 256 x 2. A barrier keeps what was transposed in memory, as a
factor of its own.

For layers that are given whole batches where they are trained. Of a layer that is mapped over single samples the
gradient would be found for each sample by itself.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.lax import optimization_barrier


def product(x: jax.Array, weights: jax.Array, dimensions: Any, precision: Any = None) -> jax.Array:
    """``x @ weights`` for ``[..., n]`` and ``[n, m]``, as flax's ``Dense`` asks for it (``dot_general``)."""
    if x.ndim == 2 and jax.default_backend() == "cpu":
        return _of_batch(x, weights)
    return jax.lax.dot_general(x, weights, dimensions, precision)


@jax.custom_vjp
def _of_batch(x: jax.Array, weights: jax.Array) -> jax.Array:
    return x @ weights


def _forward(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ weights, (x, weights)


def _backward(kept: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weights = kept
    (rows, inputs), outputs = x.shape, slope.shape[1]
    if (rows + inputs) * outputs < rows * inputs:  # less is moved where slopes are transposed, and what comes of it
        by_weights = optimization_barrier(optimization_barrier(slope.T) @ x).T
    else:
        by_weights = optimization_barrier(x.T) @ slope
    return slope @ weights.T, by_weights


_of_batch.defvjp(_forward, _backward)
