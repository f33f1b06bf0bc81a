"""A policy's action distribution, chosen by the action space: one interface for every kind.

A distribution is a frozen dataclass without arrays; its ``params`` are the output of a network's head. Its functions
are pure and take ``params`` of ``[..., num_params]``: one environment's vector, or any leading axes.

``sample`` draws all its noise in one call that depends only on the key and on shapes, and combines it with ``params``
afterwards, so that a compiled rollout can draw the noise of a whole unroll at once. Under ``vmap`` over keys each
environment has its own noise; with leading axes and a single key, that key gives the noise of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import Box, Discrete, MultiBinary, MultiDiscrete, Space, describe
from weft.core.types import Array
from weft.ops.continuous import Gaussian, SquashedGaussian
from weft.ops.discrete import Bernoulli, Categorical, MultiCategorical


class Distribution(Protocol):
    """The interface of every kind. ``action`` is ``[..., *space.shape]`` with the space's dtype."""

    @property
    def num_params(self) -> int:
        """The size of the head's output."""
        ...

    def sample(self, params: jax.Array, key: jax.Array) -> jax.Array:
        """A random action, ``[..., *space.shape]``."""
        ...

    def mode(self, params: jax.Array) -> jax.Array:
        """The most likely action, ``[..., *space.shape]``."""
        ...

    def log_prob(self, params: jax.Array, action: Array) -> jax.Array:
        """The log-probability (or log-density) of the whole action, ``[...]``."""
        ...

    def entropy(self, params: jax.Array) -> jax.Array:
        """The entropy in nats, ``[...]``."""
        ...

    def mask(self, params: jax.Array, action_mask: Array) -> jax.Array:
        """``params`` (same shape) under which only allowed choices occur; ``action_mask`` is ``[..., choices]`` bool.

        Log-probability and entropy of masked params stay finite. A dimension in which nothing is allowed counts as one
        in which everything is. A Box has no choices: its distributions raise ``ConfigError``.
        """
        ...


def distribution_for(space: Space, *, kind: str = "auto") -> Distribution:
    """The distribution for actions of ``space`` (an environment spec's ``action``).

    ``kind`` is ``auto`` or a name in ``KINDS``. ``auto`` gives ``categorical`` for Discrete, ``multi_categorical`` for
    MultiDiscrete, ``bernoulli`` for MultiBinary and ``gaussian`` for Box; a Box within [-1, 1] may also be
    ``squashed``.
    """
    if kind == "auto":
        for space_type, default in KINDS.values():
            if isinstance(space, space_type):
                return default(space)
        raise ConfigError(f"no distribution for {space!r}: an action space is one of {', '.join(_space_names())}")
    if kind not in KINDS:
        raise UnknownName("distribution", kind, ["auto", *KINDS])
    space_type, make = KINDS[kind]
    if not isinstance(space, space_type):
        fitting = next((f", which is {name} there" for name, (of, _) in KINDS.items() if isinstance(space, of)), "")
        raise ConfigError(
            f"distribution {kind!r} is for {space_type.__name__} actions, but these are {describe(space)}: "
            f"use auto{fitting}"
        )
    return make(space)


def _squashed(space: Box) -> SquashedGaussian:
    if not (space.bounded.all() and np.all(np.equal(space.low, -1.0)) and np.all(np.equal(space.high, 1.0))):
        raise ConfigError(
            f"distribution 'squashed' puts every action within [-1, 1], but {describe(space)} has low {space.low} and "
            f"high {space.high}: give the spec's 'action' (bounded there), or use 'auto', a gaussian, where there "
            "are no bounds"
        )
    return SquashedGaussian(space.shape)


KINDS: dict[str, tuple[type[Any], Callable[[Any], Distribution]]] = {
    "categorical": (Discrete, lambda space: Categorical(space.n)),
    "multi_categorical": (MultiDiscrete, lambda space: MultiCategorical(space.nvec)),
    "bernoulli": (MultiBinary, lambda space: Bernoulli(space.n)),
    "gaussian": (Box, lambda space: Gaussian(space.shape)),
    "squashed": (Box, _squashed),
}
"""For each kind its space and how to make it; a space's default comes first."""


def _space_names() -> list[str]:
    return list(dict.fromkeys(of.__name__ for of, _ in KINDS.values()))
