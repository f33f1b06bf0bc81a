"""Messages of several lanes side by side, and one of all cut into lanes: which axis of each array is the environments'.

The axis is found, not declared: the graph says what passes for any number of environments, and the axis is the one that
changes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import GraphError
from weft.core.types import Tree
from weft.runtimes.compiled.replicas import Spread

NO_AXIS = -1
"""Of an array that does not depend on the number of environments."""


class Form(NamedTuple):
    """What a message looks like: its schema, and for each leaf the environments' axis."""

    schema: Tree
    axes: Tree

    @property
    def structure(self) -> Any:
        """Its pytree structure."""
        return jax.tree.structure(self.schema)

    def unflatten(self, arrays: Sequence[Any]) -> Tree:
        """The message that a channel's arrays are."""
        return jax.tree.unflatten(self.structure, arrays)

    def spreads(self) -> Tree:
        """How a message of a share of the environments lies over several learners' devices."""
        kinds = {0: Spread.SPLIT, 1: Spread.SPLIT_TIME, NO_AXIS: Spread.SHARED}
        return jax.tree.map(lambda axis: kinds[axis], self.axes)


def form_of(schema: Tree, wider: Tree, what: str = "") -> Form:
    """The form of messages, from their schemas for one number of environments and for a larger one."""

    def axis(a: Any, b: Any) -> int:
        differ = [k for k, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if x != y]
        if len(differ) > 1 or (differ and differ[0] > 1):
            raise GraphError(
                f"{what}: an array of shape {list(a.shape)} changes to {list(b.shape)} with more environments. Their "
                "axis must be the first, or the second after time."
            )
        return differ[0] if differ else NO_AXIS

    return Form(schema, jax.tree.map(axis, schema, wider))


def join(messages: Sequence[Tree], axes: Tree) -> Tree:
    """Messages side by side, in order of their environments; what has no environments is the first's. To be traced."""
    if len(messages) == 1:
        return messages[0]
    return jax.tree.map(lambda axis, *x: jnp.concatenate(x, axis=axis) if axis != NO_AXIS else x[0], axes, *messages)


def join_on_host(messages: Sequence[Tree], axes: Tree) -> Tree:
    """The same with NumPy."""
    if len(messages) == 1:
        return messages[0]
    return jax.tree.map(lambda axis, *x: np.concatenate(x, axis=axis) if axis != NO_AXIS else x[0], axes, *messages)


def cut(message: Tree, axes: Tree, first: int, rows: int) -> Tree:
    """The environments ``first`` to ``first + rows - 1`` of a message. NumPy: views."""

    def part(axis: int, x: Any) -> Any:
        if axis == NO_AXIS:
            return x
        return x[first : first + rows] if axis == 0 else x[:, first : first + rows]

    return jax.tree.map(part, axes, message)
