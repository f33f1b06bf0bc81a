"""A sum tree: priorities are the leaves of a binary tree whose nodes are sums. Drawing is a walk from root to leaf.

One array of ``2 P`` numbers, ``P`` a power of two: node 1 is the root, node ``i`` has the children ``2 i`` and
``2 i + 1``, and the leaves are ``P … 2 P - 1``. Nodes are always added up anew from their children, so that no error of
rounding is ever carried along.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft.core.types import Array


def empty_tree(size: int) -> jax.Array:
    """A tree of at least ``size`` leaves, all 0."""
    return jnp.zeros(2 * _power_of_two(size), jnp.float32)


def leaf(tree: jax.Array, index: Array) -> jax.Array:
    """``[N]`` the priorities of the leaves ``index`` (``[N]``). Of all leaves at once a copy would be made."""
    return tree[tree.shape[0] // 2 + index]


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

    def upwards(_: Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        tree, node = now
        node = jnp.where(node < 2 * half, node // 2, 2 * half)
        return tree.at[node].set(tree[2 * node] + tree[2 * node + 1], mode="drop"), node

    # A loop, and not its turns one after the other: of those XLA copies the tree.
    tree, _ = jax.lax.fori_loop(0, half.bit_length() - 1, upwards, (tree, node))
    return tree


class Found(NamedTuple):
    """Leaves that were drawn."""

    leaf: jax.Array  # [N] int32
    priority: jax.Array  # [N]
    total: jax.Array  # [] the sum of all priorities


def find(tree: jax.Array, share: Array) -> Found:
    """For each ``share`` (``[N]``, in ``[0, 1)``) of all priorities the leaf at which their running sum passes it."""
    half = tree.shape[0] // 2

    def downwards(turn: Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        node, mass, _, whole = now
        left, beside = tree[2 * node], tree[2 * node + 1]
        # Never into a branch of sum 0: rounding may leave a little mass when nothing is left to hold it.
        right = (mass >= left) & (beside > 0)
        whole = jnp.where(turn == 0, left[0] + beside[0], whole)
        return 2 * node + right, jnp.where(right, mass - left, mass), jnp.where(right, beside, left), whole

    # All that is read is read in this loop: it is over before the tree is written to again. What is read outside of it,
    # the sum too, may be read later, and the tree is copied for it.
    zero = jnp.zeros((), tree.dtype)
    begun = (jnp.ones(share.shape, jnp.int32), share * total(tree), jnp.broadcast_to(zero, share.shape), zero)
    node, _, priority, whole = jax.lax.fori_loop(0, half.bit_length() - 1, downwards, begun)
    return Found(node - half, priority, whole)


def _power_of_two(size: int) -> int:
    return 1 << max(1, (size - 1).bit_length())
