"""Optimisers by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import optax

from weft.core.types import Array

OPTIMIZERS: dict[str, Callable[[optax.Schedule], optax.GradientTransformation]] = {
    "adam": partial(optax.adam, eps=1e-5),
    "rmsprop": partial(optax.rmsprop, decay=0.99, eps=1e-5),
}


def bounded_optimizer(name: str, rate: Array | float, max_norm: float) -> optax.GradientTransformation:
    """An optimiser of ``OPTIMIZERS`` with the learning rate ``rate`` (``[]``), behind a bound on the gradient's norm.

    It treats all params as one long vector, which takes fewer operations than leaf by leaf.
    """
    rule = OPTIMIZERS[name](lambda updates: rate)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(max_norm), rule))
