"""A fast random permutation."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def random_order(key: jax.Array, size: int) -> jax.Array:
    """The numbers below ``size`` in random order, ``[size]`` int32; above 2**24 by ``jax.random.permutation``.

    Each number is the low bits of a word whose high bits are random, and the words are sorted. That is one sort of one
    array, where ``jax.random.permutation`` sorts pairs, twice. Numbers whose high bits are equal stay in order. That
    can only matter at the edge between two minibatches: elsewhere such numbers fall into the same one.
    """
    if size > 2**24:
        return jnp.asarray(jax.random.permutation(key, size))
    low = jnp.uint32((1 << max(size - 1, 1).bit_length()) - 1)
    words = (jax.random.bits(key, (size,), jnp.uint32) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return jnp.asarray(jnp.sort(words) & low, jnp.int32)
