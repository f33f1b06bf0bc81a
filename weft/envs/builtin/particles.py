"""The particle world of MPE: discs on a plane that are pushed, damped, and pushed apart where they touch.

A step moves every disc by its velocity, damps the velocity, then adds the acceleration by all forces: its own push and
the contacts. Everything is ``[N, 2]`` for ``N`` discs of one environment. What is pairwise is written so that XLA
can compute it within its reduction, instead of storing ``N`` by ``N`` numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, Space

TICK = 0.1  # seconds that a step lasts
DAMPING = 0.25  # the part of a velocity that a step takes away
STIFFNESS = 100.0  # the force of a contact, for each unit that two discs are inside each other
MARGIN = 1e-3  # how softly a contact begins, in units of length

PUSHES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float32)
"""``[5, 2]``: where each discrete action pushes: nowhere, left, right, down, up."""

Sizes = npt.NDArray[np.float64]


def action_space(continuous: bool) -> Space:
    """What an agent does: one of five pushes, or how strong each of the five is, 0 to 1 (the first does nothing)."""
    return Box((5,), "float32", 0.0, 1.0) if continuous else Discrete(5)


def pushes(action: jax.Array) -> jax.Array:
    """The unit force of each action, ``[N, 2]``; of choices ``[N]`` int32, or strengths ``[N, 5]`` float32."""
    table = jnp.asarray(PUSHES)
    return table[action] if jnp.issubdtype(action.dtype, jnp.integer) else action @ table


def moved(
    position: jax.Array, velocity: jax.Array, force: jax.Array, fastest: Sizes | None = None
) -> tuple[jax.Array, jax.Array]:
    """Position and velocity ``[N, 2]`` one step on; ``fastest`` (``[N]``) bounds the speed of each. All weigh 1."""
    position = position + velocity * TICK
    velocity = velocity * (1 - DAMPING) + force * TICK
    if fastest is not None:
        speed = jnp.sqrt(jnp.sum(velocity**2, axis=-1))
        velocity = velocity * jnp.where(speed > fastest, fastest / jnp.maximum(speed, 1e-12), 1.0)[:, None]
    return position, velocity


def distances(one: jax.Array, other: jax.Array) -> jax.Array:
    """How far each of ``one`` (``[N, 2]``) is from each of ``other`` (``[M, 2]``): ``[N, M]``."""
    across, along = _apart(one, other)
    return jnp.sqrt(across**2 + along**2)


def touching(one: jax.Array, one_size: Sizes, other: jax.Array, other_size: Sizes) -> jax.Array:
    """Which of ``one`` overlap which of ``other``: ``[N, M]`` bool."""
    return distances(one, other) < one_size[:, None] + other_size[None, :]


def contact(
    one: jax.Array,
    one_size: Sizes,
    other: jax.Array,
    other_size: Sizes,
    *,
    among: bool = False,
    there: jax.Array | None = None,
) -> jax.Array:
    """The force on each of ``one`` from all of ``other`` that it touches: ``[N, 2]``.

    ``among``: both are the same discs, none of which touches itself. ``there`` (``[M]`` bool) leaves out the others.
    """
    across, along = _apart(one, other)
    apart = jnp.sqrt(across**2 + along**2)
    deep = (one_size[:, None] + other_size[None, :] - apart) / MARGIN
    inside = MARGIN * (jnp.maximum(deep, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(deep))))
    counts = _usable(len(one), len(other), among, there)
    strength = jnp.where(counts, STIFFNESS * inside / jnp.where(counts, apart, 1.0), 0.0)
    none = jnp.zeros((), strength.dtype)
    # Both sums in one reduction: with two, XLA would store what both of them need.
    forces = jax.lax.reduce((strength * across, strength * along), (none, none), _add_both, (1,))
    return jnp.stack(forces, axis=1)


def nearest(
    one: jax.Array, other: jax.Array, count: int, *, among: bool = False, there: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """The ``count`` of ``other`` that are nearest to each of ``one``, nearest first.

    Their indices, ``[N, count]`` int32, and whether there was one, bool. Each is found as the minimum of those that
    were not found yet: no distances are sorted. ``among`` and ``there`` as in ``contact``.
    """
    across, along = _apart(one, other)
    apart = across**2 + along**2
    usable = _usable(len(one), len(other), among, there)
    present = jnp.ones(len(other), jnp.int32) if there is None else there.astype(jnp.int32)
    many = jnp.sum(present) - (present if among else jnp.zeros(len(one), jnp.int32))
    index = jnp.arange(len(other), dtype=jnp.int32)[None, :]
    found: list[jax.Array] = []
    for _ in range(count):
        at = jnp.argmin(jnp.where(usable, apart, jnp.inf), axis=1).astype(jnp.int32)
        usable = usable & (index != at[:, None])
        found.append(at)
    return jnp.stack(found, axis=1), jnp.arange(count) < many[:, None]


def _apart(one: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far each of ``one`` is right of and above each of ``other``: two of ``[N, M]``."""
    return one[:, None, 0] - other[None, :, 0], one[:, None, 1] - other[None, :, 1]


def _add_both(one: Any, other: Any) -> Any:
    return one[0] + other[0], one[1] + other[1]


def _usable(rows: int, columns: int, among: bool, there: jax.Array | None) -> jax.Array:
    """Which pairs count, ``[rows, columns]`` bool or what broadcasts to it."""
    usable = jnp.ones((1, columns), jnp.bool_) if there is None else there[None, :]
    return usable & (jnp.arange(rows)[:, None] != jnp.arange(columns)[None, :]) if among else usable


def others_of(count: int) -> npt.NDArray[np.int32]:
    """The indices of all but each of ``count`` discs, in order: ``[count, count - 1]``."""
    everyone = np.arange(count, dtype=np.int32)
    return np.stack([np.delete(everyone, i) for i in range(count)]).reshape(count, count - 1)


def checked(name: str, least: dict[str, tuple[object, int]]) -> None:
    """Refuse what is not a whole number, or is too small: ``least`` has the value and the least one by field."""
    for field, (value, lowest) in least.items():
        if type(value) is not int or value < lowest:
            raise ConfigError(f"environment {name!r}: {field} must be a whole number from {lowest} on, got {value!r}")
