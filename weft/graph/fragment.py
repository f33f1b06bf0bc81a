"""Fragments and their ports: the pieces a training loop is cut into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from weft.core.types import Array, Tree

Schema: TypeAlias = Tree
"""A pytree whose leaves have ``shape`` and ``dtype`` (``jax.ShapeDtypeStruct``), as ``jax.eval_shape`` gives it."""


@dataclass(frozen=True)
class Port:
    """A typed input or output: the name of what passes, and its schema."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Fragment:
    """A named piece of the loop. It knows neither where it runs nor how many copies of it there are.

    ``parts`` are the names a plan may use to split it (learn is grad + apply). A fragment that sits on a stream of
    unrolls has ``step(state, unroll) -> (state, unroll)``, and ``init(key) -> state`` where it has state; env, act and
    learn take theirs from the environment and the algorithm.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    pure: bool = True  # traceable by JAX: it can be fused with its neighbours into one program
    parts: tuple[str, ...] = ()
    init: Callable[[Array], Tree] | None = None
    step: Callable[[Tree, Tree], tuple[Tree, Tree]] | None = None

    def input(self, name: str) -> Port:
        """The input port called ``name``."""
        return next(port for port in self.inputs if port.name == name)

    def output(self, name: str) -> Port:
        """The output port called ``name``."""
        return next(port for port in self.outputs if port.name == name)
