"""A matrix product with few columns, quick on a CPU.

Heads are narrow: two logits, three, a mean. XLA's CPU takes as long for the gradient of such a matrix as for that of
one with 64 columns, and a tenth of that for a vector. So there a narrow matrix is taken column by column. The same
sums, in another order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

WIDEST = 6
"""Columns up to which it pays (seen with jaxlib 0.10.2: 256 rows of 64, forward and back: 2 columns in a fifth of the
time, 6 in two thirds; 8 in as much)."""


def narrow_product(columns: int) -> Any:
    """What ``nn.Dense`` is to multiply with, given its number of features; None for XLA's own product."""
    return _by_columns if 1 < columns <= WIDEST and jax.default_backend() == "cpu" else None


def _by_columns(x: jax.Array, kernel: jax.Array, dimensions: Any, **options: Any) -> jax.Array:
    """``[..., n]`` by ``[n, columns]``, as ``nn.Dense`` asks ``jax.lax.dot_general`` for it."""
    assert dimensions == (((x.ndim - 1,), (0,)), ((), ()))
    columns = [jax.lax.dot_general(x, kernel[:, j], dimensions, **options) for j in range(kernel.shape[1])]
    return jnp.stack(columns, axis=-1)
