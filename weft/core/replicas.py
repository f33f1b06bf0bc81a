"""What an algorithm may know of its replicas: nothing but the mean over them.

A runtime that trains several replicas of a learner wraps their tracing in ``replica_axis``; an algorithm calls
``mean_over_replicas`` on its gradients and need not know whether there is one replica or a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from weft.core.types import Array

T = TypeVar("T")
_axis: ContextVar[str | None] = ContextVar("weft_replica_axis", default=None)


def mean_over_replicas(tree: T) -> T:
    """The mean of every leaf over the replicas of the learner; ``tree`` itself where there is but one."""
    axis = _axis.get()
    if axis is None:
        return tree
    import jax
    import jax.numpy as jnp

    # As one array for each dtype: between processes every array sent is a round trip of its own, however small.
    leaves, structure = jax.tree.flatten(tree)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    mean: dict[int, jax.Array] = {}
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):  # in order: all replicas must do the same
        mine = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        flat = jax.lax.pmean(jnp.concatenate([leaves[i].ravel() for i in mine]), axis)
        start = 0
        for i in mine:
            mean[i] = flat[start : start + leaves[i].size].reshape(leaves[i].shape)
            start += leaves[i].size
    averaged: T = jax.tree.unflatten(structure, [mean[i] for i in range(len(leaves))])
    return averaged


def of_replica(key: Array) -> Array:
    """A key of this replica's own, for what it keeps to itself; ``key`` where there is but one."""
    axis = _axis.get()
    if axis is None:
        return key
    import jax

    return jax.random.fold_in(key, jax.lax.axis_index(axis))


@contextmanager
def replica_axis(name: str | None) -> Iterator[None]:
    """While a learner is traced: the mapped axis its replicas lie along, or None for a single one."""
    token = _axis.set(name)
    try:
        yield
    finally:
        _axis.reset(token)
