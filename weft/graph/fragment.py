"""Fragments and their ports: the pieces a training loop is cut into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.core.errors import GraphError
from weft.core.types import Array, Tree
from weft.graph.role import Role, role, usual_role

Schema: TypeAlias = Tree
"""A pytree whose leaves have ``shape`` and ``dtype`` (``jax.ShapeDtypeStruct``), as ``jax.eval_shape`` gives it."""


@dataclass(frozen=True)
class Port:
    """A typed input or output: the name of what passes, and its schema."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class MapCode:
    """What a map runs: ``step(state, message, *params) -> (state, message)``, and ``init(key) -> state``.

    A list of messages instead of one is as many messages, an empty list is none. ``reads`` are the fragments whose
    newest params follow the message.
    """

    step: Callable[..., tuple[Tree, Any]]
    init: Callable[[Array], Tree] | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fragment:
    """A named piece of the loop. It knows neither where it runs nor how many copies of it there are.

    ``code`` is what its role runs: a bound algorithm (act, learn), a ``MapCode`` (map), whatever a role of your own
    wants. ``parts`` are the names by which a plan may split it (learn is grad + apply); a part knows what it is
    ``part_of``.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    pure: bool = True  # traceable by JAX: it can be fused with its neighbours into one program
    parts: tuple[str, ...] = ()
    role_name: str = ""  # in the registry of roles; unless told, by the fragment's name, else map
    code: Any = None
    part_of: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "role_name", self.role_name or usual_role(self.name))
        role(self.role_name)  # refused here where nobody knows it

    @property
    def role(self) -> Role:
        """What plans and layouts know of it."""
        return role(self.role_name)

    def input(self, name: str) -> Port:
        """The input port called ``name``."""
        return self._port("input", self.inputs, name)

    def output(self, name: str) -> Port:
        """The output port called ``name``."""
        return self._port("output", self.outputs, name)

    def _port(self, side: str, ports: tuple[Port, ...], name: str) -> Port:
        for port in ports:
            if port.name == name:
                return port
        known = ", ".join(p.name for p in ports) or "none"
        raise GraphError(f"fragment {self.name!r} has no {side} port {name!r} ({side} ports: {known})")
