"""Values of any scale, squashed: signed square roots, and back (Pohlen et al., arXiv 1805.11593)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array

SLOPE = 1e-3
"""A little of the value itself, without which the inverse would not be smooth everywhere."""


def rescaled(value: Array) -> jax.Array:
    """``sign(x) (sqrt(|x| + 1) - 1) + SLOPE x``."""
    return jnp.sign(value) * (jnp.sqrt(jnp.abs(value) + 1.0) - 1.0) + SLOPE * value


def unrescaled(value: Array) -> jax.Array:
    """The inverse of ``rescaled``."""
    root = jnp.sqrt(1.0 + 4.0 * SLOPE * (jnp.abs(value) + 1.0 + SLOPE))
    return jnp.sign(value) * (((root - 1.0) / (2.0 * SLOPE)) ** 2 - 1.0)
