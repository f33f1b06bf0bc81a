"""Distributions over returns that are fixed: atoms at equal distances (C51; Bellemare et al., arXiv 1707.06887)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array


def project(probability: Array, returns: Array, support: Array) -> jax.Array:
    """The distribution that has ``probability`` (``[..., M]``) at ``returns`` (``[..., M]``), as one over the atoms.

    ``support`` (``[Z]``) rises by equal steps. A return between two atoms is shared between them, more to the nearer
    one, so that the mean stays; one beyond the first or the last atom counts as that atom. Gives ``[..., Z]``.
    """
    support = jnp.asarray(support)
    inside = jnp.clip(returns, support[0], support[-1])
    distance = jnp.abs(inside[..., None, :] - support[:, None]) / (support[1] - support[0])  # [..., Z, M]
    return (jnp.clip(1.0 - distance, 0.0, 1.0) * jnp.asarray(probability)[..., None, :]).sum(-1)


def cross_entropy(logits: Array, probability: Array) -> jax.Array:
    """``[...]`` of ``[..., Z]`` logits of atoms, and the probabilities that they are moved towards."""
    return -(jax.lax.stop_gradient(probability) * jax.nn.log_softmax(logits)).sum(-1)
