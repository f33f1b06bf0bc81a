"""Running mean and variance of a tree of arrays, for normalising observations and rewards.

Batches are merged by the parallel formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
computing sample variances", 1979), in weighted form: the stored numbers stay of the size of the data however long a run
is. Only floating-point leaves take part; all others (uint8 images, Discrete observations) pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import ConfigError
from weft.core.types import Array, Tree

MAX_SEEN = 2.0**24
"""The count stops here, at the last integer that float32 counts to by ones. From then on the statistics are an
exponential average over about this many records, and a batch's weight never falls below float32's resolution."""


class RunningStatistics(NamedTuple):
    """Statistics of everything seen so far. Leaves that do not take part have an empty array in both trees."""

    seen: jax.Array  # [] float32: number of records, at most MAX_SEEN; per replica where replicas are averaged
    mean: Tree  # float32, the shape of one record
    var: Tree  # float32, the shape of one record: the mean squared distance from the mean; 1 before the first record


def init(record: Tree) -> RunningStatistics:
    """Statistics of nothing: normalising with them only clips.

    ``record`` is a tree whose leaves have the shape and dtype of one record, without batch axes: arrays,
    ``jax.ShapeDtypeStruct``, or spaces (an environment spec's ``observation``).
    """

    def filled(value: float) -> Tree:
        return jax.tree.map(lambda leaf: jnp.full(leaf.shape if _is_float(leaf) else (0,), value, jnp.float32), record)

    return RunningStatistics(jnp.zeros((), jnp.float32), filled(0.0), filled(1.0))


def update(
    stats: RunningStatistics,
    batch: Tree,
    valid: Array | None = None,
    mean_over_replicas: Callable[[Tree], Tree] | None = None,
) -> RunningStatistics:
    """``stats`` with a batch added.

    Leaves of ``batch`` are ``[*batch axes, *record shape]``, with the same batch axes in all (``[B]``, ``[T, B]``,
    …). ``valid`` (bool) has only the batch axes; records that are not valid are not used. Where replicas see different
    batches, ``mean_over_replicas`` averages a tree over them (``jax.lax.pmean``; a sum works too, and then ``seen``
    counts the records of all). Every replica gets the same result, that of the whole batch.
    """
    leaves, means, variances, structure = _aligned(stats, batch)
    taking = [i for i, mean in enumerate(means) if mean.size]
    if not taking:
        return stats
    first = taking[0]
    axes = leaves[first].shape[: leaves[first].ndim - means[first].ndim]
    count = jnp.sum(valid, dtype=jnp.float32) if valid is not None else jnp.float32(np.prod(axes))

    local = [_moments(leaves[i], means[i], len(axes), valid) for i in taking]
    batch_means, batch_vars = [m for m, _ in local], [v for _, v in local]
    if mean_over_replicas is not None:
        local_count, local_means = count, batch_means
        shifts = [means[i] for i in taking]  # sums are relative to these, so that data far from 0 lose no digits
        sums = [local_count * (m - shift) for m, shift in zip(local_means, shifts, strict=True)]
        count, totals = mean_over_replicas((local_count, sums))
        batch_means = [s + total / jnp.maximum(count, _LEAST) for s, total in zip(shifts, totals, strict=True)]
        spreads = [
            local_count * (v + jnp.square(m - whole))
            for m, v, whole in zip(local_means, batch_vars, batch_means, strict=True)
        ]
        batch_vars = [total / jnp.maximum(count, _LEAST) for total in mean_over_replicas(spreads)]

    weight = count / jnp.maximum(stats.seen + count, _LEAST)  # 0 where the batch is empty
    for i, batch_mean, batch_var in zip(taking, batch_means, batch_vars, strict=True):
        delta = batch_mean - means[i]
        variances[i] = variances[i] + weight * (batch_var - variances[i] + (1.0 - weight) * jnp.square(delta))
        means[i] = means[i] + weight * delta
    return RunningStatistics(
        jnp.minimum(stats.seen + count, MAX_SEEN),
        jax.tree.unflatten(structure, means),
        jax.tree.unflatten(structure, variances),
    )


def normalise(
    stats: RunningStatistics, x: Tree, clip: float | None = 10.0, centre: bool = True, eps: float = 1e-8
) -> Tree:
    """``x`` minus the mean, divided by the deviation, then clipped to [-``clip``, ``clip``] (None: not clipped).

    Leaves of ``x`` are ``[..., *record shape]``; those that do not take part are returned unchanged. ``eps`` is added
    to the variance. With ``centre`` False the mean is not subtracted: use that for rewards, whose sign matters.
    """

    def scale(leaf: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
        scaled = (leaf - mean if centre else leaf) * jax.lax.rsqrt(var + eps)
        return scaled if clip is None else jnp.clip(scaled, -clip, clip)

    leaves, means, variances, structure = _aligned(stats, x)
    rows = zip(leaves, means, variances, strict=True)
    return jax.tree.unflatten(structure, [scale(leaf, m, v) if m.size else leaf for leaf, m, v in rows])


def restore(stats: RunningStatistics, x: Array, eps: float = 1e-8) -> jax.Array:
    """What ``normalise``, not clipped, would make ``x`` of; ``x`` and the record are single arrays."""
    restored: jax.Array = x * jnp.sqrt(stats.var + eps) + stats.mean
    return restored


_LEAST = 1e-6  # below every count, even one averaged over very many replicas; avoids 0 / 0


def _is_float(leaf: Tree) -> bool:
    return bool(jnp.issubdtype(jnp.dtype(leaf.dtype), jnp.floating))


def _aligned(stats: RunningStatistics, x: Tree) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array], Any]:
    """The leaves of ``x``, of the means and of the variances, in one order, and their common structure."""
    structure: Any
    leaves, structure = jax.tree.flatten(x)
    expected: Any = jax.tree.structure(stats.mean)
    if structure != expected:
        raise ConfigError(
            f"statistics were made for a record of structure {expected}, but {structure} came: "
            "make them by init() from a record of the same structure"
        )
    return leaves, jax.tree.leaves(stats.mean), jax.tree.leaves(stats.var), structure


def _moments(leaf: jax.Array, shift: jax.Array, num_axes: int, valid: Array | None) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over the first ``num_axes`` axes; 0 and 0 where nothing is valid.

    They are computed relative to ``shift`` and in two passes, the second correcting the first, so that data far from 0
    lose no digits.
    """
    axes = tuple(range(num_axes))
    where = None if valid is None else valid.reshape(valid.shape + (1,) * (leaf.ndim - num_axes))
    count = np.prod(leaf.shape[:num_axes]) if valid is None else jnp.maximum(jnp.sum(valid), 1)

    def average(values: jax.Array) -> jax.Array:
        kept = values if where is None else jnp.where(where, values, 0.0)
        return jnp.sum(kept, axis=axes) / count

    centred = leaf.astype(jnp.float32) - shift
    rough = average(centred)
    rest = centred - rough
    correction = average(rest)
    return shift + rough + correction, average(jnp.square(rest)) - jnp.square(correction)
