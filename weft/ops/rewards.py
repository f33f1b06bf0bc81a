"""Rewards as a learner sees them."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from weft.core.types import Array

Together = Literal["mean", "sum"]
"""What the rewards of several agents come to for their team."""


def of_team(reward: Array, together: Together) -> jax.Array:
    """The team's reward, ``[...]``, of its agents' ``[..., A]``."""
    return jnp.mean(reward, -1) if together == "mean" else jnp.sum(reward, -1)


def reshaped(reward: Array, scale: float = 1.0, clip: float | None = None) -> jax.Array:
    """``reward`` (``[...]``) multiplied by ``scale``, then clipped to [-``clip``, ``clip``] (None: not clipped)."""
    scaled = jnp.asarray(reward) * scale
    return scaled if clip is None else jnp.clip(scaled, -clip, clip)
