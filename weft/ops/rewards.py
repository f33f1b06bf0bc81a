"""Rewards as a learner sees them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array


def reshaped(reward: Array, scale: float = 1.0, clip: float | None = None) -> jax.Array:
    """``reward`` (``[...]``) multiplied by ``scale``, then clipped to [-``clip``, ``clip``] (None: not clipped)."""
    scaled = jnp.asarray(reward) * scale
    return scaled if clip is None else jnp.clip(scaled, -clip, clip)
