"""A random order, quickly."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def random_order(key: jax.Array, size: int) -> jax.Array:
    """The numbers below ``size`` in random order, ``[size]`` int32; ``size`` is at most 2**24.

    Each number is put below random high bits in one word, and the words are sorted: one sort of one array, where
    ``jax.random.permutation`` sorts pairs, twice. Numbers whose high bits agree stay in order, which has no effect on
    which slice of the order a number falls into, but at a slice's edge: what minibatches are drawn from.
    """
    if size > 2**24:
        return jnp.asarray(jax.random.permutation(key, size))
    low = jnp.uint32((1 << max(size - 1, 1).bit_length()) - 1)
    words = (jax.random.bits(key, (size,), jnp.uint32) & ~low) | jnp.arange(size, dtype=jnp.uint32)
    return jnp.asarray(jnp.sort(words) & low, jnp.int32)
