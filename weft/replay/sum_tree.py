"""A sum tree: priorities are the leaves of a binary tree whose nodes are sums. Drawing is a walk from root to leaf.

One array of ``2 P`` numbers, ``P`` a power of two: node 1 is the root, node ``i`` has the children ``2 i`` and
``2 i + 1``, and the leaves are ``P … 2 P - 1``. Nodes are always added up anew from their children, so that no error of
rounding is ever carried along.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.types import Array


def empty_tree(size: int) -> jax.Array:
    """A tree of at least ``size`` leaves, all 0."""
    return jnp.zeros(2 * _power_of_two(size), jnp.float32)


def leaves(tree: jax.Array) -> jax.Array:
    """``[P]`` priorities."""
    return tree[tree.shape[0] // 2 :]


def total(tree: jax.Array) -> jax.Array:
    """[] the sum of all priorities."""
    return tree[1]


def update(tree: jax.Array, index: Array, priority: Array) -> jax.Array:
    """Set the leaves ``index`` (``[N]``) to ``priority`` (``[N]``); an index that is out of range changes nothing.

    Of an index that is there twice, one of the two is kept.
    """
    half = tree.shape[0] // 2
    node = jnp.where((index >= 0) & (index < half), index + half, 2 * half)  # beyond the end: dropped
    tree = tree.at[node].set(priority, mode="drop")
    for _ in range(half.bit_length() - 1):
        node = jnp.where(node < 2 * half, node // 2, 2 * half)
        tree = tree.at[node].set(tree[2 * node] + tree[2 * node + 1], mode="drop")
    return tree


def find(tree: jax.Array, mass: Array) -> jax.Array:
    """For each of ``mass`` (``[N]``, in ``[0, total)``) the leaf at which the running sum of priorities passes it."""
    half = tree.shape[0] // 2
    node = jnp.ones(mass.shape, jnp.int32)
    for _ in range(half.bit_length() - 1):
        left = tree[2 * node]
        # Never into a branch of sum 0: rounding may leave a little mass when nothing is left to hold it.
        right = (mass >= left) & (tree[2 * node + 1] > 0)
        mass = jnp.where(right, mass - left, mass)
        node = 2 * node + right
    return node - half


def _power_of_two(size: int) -> int:
    return 1 << max(1, (size - 1).bit_length())
