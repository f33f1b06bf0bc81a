"""Randomness belongs to the environment's index and the step, never to the process.

A key is folded from (run seed, fragment, environment index, step), so that moving an environment to another process or
device draws the same numbers there. JAX is loaded only by the functions that make JAX keys.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import jax

    from weft.core.types import Array


def host_seed(seed: int, index: int) -> int:
    """The seed of host environment ``index`` in a run with ``seed``: 31 bits, well mixed."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0]) & 0x7FFF_FFFF


def fragment_key(seed: int | Array, fragment: str) -> jax.Array:
    """The key of one fragment in a run; ``seed`` is an integer, or an integer array under ``vmap``."""
    import jax

    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(fragment.encode()) & 0x7FFF_FFFF)


def environment_key(seed: int | Array) -> jax.Array:
    """The key of a run's environments, whatever the fragment that steps them is called."""
    return fragment_key(seed, "env")


def env_keys(key: Array, indices: Array) -> jax.Array:
    """``[B]`` keys, one for each environment index in ``indices`` (``[B]`` int32)."""
    import jax

    return jax.vmap(lambda index: jax.random.fold_in(key, index))(indices)


def step_keys(keys: Array, start: Array, steps: int) -> jax.Array:
    """``[steps, B]`` keys for the steps from ``start`` (a scalar) on, of the environments with ``keys`` (``[B]``)."""
    import jax
    import jax.numpy as jnp

    fold = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))
    return fold(keys, start + jnp.arange(steps))
