"""Squares along the axes on a plane: kept from overlapping, and in the way of sight. One environment; no batch axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

ROUNDS = 4  # in which overlaps are taken away; what is left of a pile is gone a few steps later


def apart(centre: jax.Array, half: npt.NDArray[np.float32], lightness: jax.Array, border: float) -> jax.Array:
    """Squares pushed out of each other, and back inside the border: centres, ``[N, 2]``.

    Two that overlap part along the axis on which they overlap less, each as far as its share of their ``lightness``
    (``[N]``) says; one with 0 stays where it is. ``half`` (``[N]``) is half of each side, ``border`` that of the field.
    """
    inside = (border - half)[:, None]
    reach = (half[:, None] + half[None, :])[..., None]
    share = lightness[:, None] / jnp.maximum(lightness[:, None] + lightness[None, :], 1e-6)  # [N, N]
    others = ~np.eye(len(half), dtype=bool)

    def once(centre: jax.Array, _: None) -> tuple[jax.Array, None]:
        away = centre[:, None] - centre[None, :]  # [N, N, 2]
        deep = reach - jnp.abs(away)
        overlaps = jnp.all(deep > 0, axis=-1) & others
        least = jnp.stack([deep[..., 0] <= deep[..., 1], deep[..., 0] > deep[..., 1]], axis=-1)
        side = jnp.where(away < 0, -1.0, 1.0)
        shift = jnp.where(overlaps[..., None] & least, side * deep * share[..., None], 0.0)
        moved = jnp.clip(centre + jnp.sum(shift, axis=1), -inside, inside)
        return jnp.where(lightness[:, None] > 0, moved, centre), None

    return jax.lax.scan(once, centre, None, length=ROUNDS)[0]


def crossed(start: jax.Array, end: jax.Array, centre: jax.Array, half: float) -> jax.Array:
    """Which lines from each of ``start`` (``[S, 2]``) to each of ``end`` (``[E, 2]``) pass through which squares.

    ``[S, E, K]`` bool, for squares of half side ``half`` around ``centre`` (``[K, 2]``). By slabs: a line is inside
    a square for the part of its way on which it is between both pairs of sides at once.
    """
    way = end[None, :, None] - start[:, None, None]  # [S, E, 1, 2]
    way = jnp.where(jnp.abs(way) < 1e-9, 1e-9, way)  # along a side: in or out for the whole way
    offset = centre[None, None] - start[:, None, None]  # [S, 1, K, 2]
    one, other = (offset - half) / way, (offset + half) / way
    enters = jnp.max(jnp.minimum(one, other), axis=-1)
    leaves = jnp.min(jnp.maximum(one, other), axis=-1)
    return (enters < leaves) & (enters < 1) & (leaves > 0)
