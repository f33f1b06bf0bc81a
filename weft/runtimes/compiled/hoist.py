"""Randomness out of the loop: split a function into what depends on its key alone, and the rest.

``act(params, carry, timestep, key)`` draws noise from its key and mixes it with what it computes. Inside a loop over
steps the drawing is many small operations, which cost more than they compute (on a CPU a Threefry call is a loop of
its own). So the runtime traces the function once, finds the equations that depend on nothing but the key, runs those
for a whole ``[T, B]`` block of keys in one call, and hands the results in step by step. The algorithm is not changed
and does not know.

The split is exact: the same equations run on the same keys, only earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

from weft.core.types import Tree
from weft.graph.stream import schema_bytes

MAX_BYTES = 256
"""What one step may be handed; a function that would need more keeps its key (a reset that draws an image, say)."""


class Hoisted(NamedTuple):
    """A function cut in two: ``rest(early(key, *more), *args) == function(*args, key, *more)``."""

    early: Callable[..., Tree]
    rest: Callable[..., Tree]


def hoist(function: Callable[..., Tree], *args: Tree, more: tuple[Any, ...] = ()) -> Hoisted:
    """Cut ``function(*args, key, *more)``; ``args`` are examples (arrays or ``ShapeDtypeStruct``), without the key.

    ``more`` are examples of what is known as early as the key: the number of the step. Both halves can be traced,
    batched and compiled. Where the early values would be too large, ``early`` is the identity and nothing moves.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args, key, *more)
    structure = jax.tree.structure(shape)

    def half(handed: list[Any] | None, inputs: list[_Value]) -> tuple[_Walk, list[Any]]:
        walk = _Walk(handed)
        outputs = walk.run(closed.jaxpr, closed.consts, inputs)
        return walk, [walk.payload(value) for value in outputs]

    def early(*known: jax.Array) -> tuple[Any, ...]:
        absent = [_Value(_Kind.REST) for _ in closed.jaxpr.invars[: -len(known)]]
        walk, _ = half(None, [*absent, *(_Value(_Kind.EARLY, x) for x in known)])
        return tuple(walk.found)

    def rest(handed: tuple[Any, ...], *args: Tree) -> Tree:
        given = [_Value(_Kind.REST, leaf) for leaf in jax.tree.leaves(args)]
        _, outputs = half(list(handed), [*given, *(_Value(_Kind.EARLY) for _ in (key, *more))])
        return jax.tree.unflatten(structure, outputs)

    if schema_bytes(jax.eval_shape(early, key, *more)) > MAX_BYTES:
        if more:
            return Hoisted(lambda *known: known, lambda handed, *args: function(*args, *handed))
        return Hoisted(lambda key: key, lambda handed, *args: function(*args, handed))
    return Hoisted(early, rest)


class _Kind(Enum):
    CONSTANT = 0  # depends on no argument: both halves compute it
    EARLY = 1  # depends on the key, and on no other argument
    REST = 2


@dataclass
class _Value:
    """A value during a walk; ``payload`` is absent where the other half computes it."""

    kind: _Kind
    payload: Any = None
    passed: bool = field(default=False)  # an early value that has been handed over already


class _Walk:
    """Runs one half of a jaxpr.

    The early half (``handed`` is None) computes the key-only values and collects those that the rest will ask for. The
    rest walks the same equations and takes them as it comes to them, so that both agree on the order without a table.
    """

    def __init__(self, handed: list[Any] | None) -> None:
        self.handed = handed
        self.found: list[Any] = []

    def run(self, jaxpr: Any, consts: Any, inputs: list[_Value]) -> list[_Value]:
        """Evaluate a jaxpr as far as this half goes."""
        scope = {var: _Value(_Kind.CONSTANT, const) for var, const in zip(jaxpr.constvars, consts, strict=True)}
        scope.update(zip(jaxpr.invars, inputs, strict=True))

        def read(var: Any) -> _Value:
            return _Value(_Kind.CONSTANT, var.val) if isinstance(var, Literal) else scope[var]

        for equation in jaxpr.eqns:
            values = [read(var) for var in equation.invars]
            scope.update(zip(equation.outvars, self._equation(equation, values), strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, equation: Any, values: list[_Value]) -> list[_Value]:
        kinds = {value.kind for value in values}
        if _Kind.REST not in kinds:
            kind = _Kind.EARLY if _Kind.EARLY in kinds else _Kind.CONSTANT
            if kind is _Kind.EARLY and self.handed is not None:
                return [_Value(kind) for _ in equation.outvars]
            return [_Value(kind, out) for out in _bind(equation, [value.payload for value in values])]
        inner = equation.params.get("jaxpr")
        if _Kind.EARLY in kinds and equation.primitive.name in ("jit", "pjit"):
            return self.run(inner.jaxpr, inner.consts, values)  # the two mix inside: look there
        payloads = [self.payload(value) for value in values]
        if self.handed is None:
            return [_Value(_Kind.REST) for _ in equation.outvars]
        return [_Value(_Kind.REST, out) for out in _bind(equation, payloads)]

    def payload(self, value: _Value) -> Any:
        """What the rest sees of a value; an early one is handed over the first time that it is asked for."""
        if value.kind is _Kind.EARLY and not value.passed:
            value.passed = True
            if self.handed is None:
                self.found.append(value.payload)
            else:
                value.payload = self.handed.pop(0)
        return value.payload


def _bind(equation: Any, values: list[Any]) -> list[Any]:
    params = equation.primitive.get_bind_params(equation.params)
    functions: Any = ()
    if isinstance(params, tuple):  # before JAX 0.10 the inner functions came beside the params
        functions, params = params
    outputs = equation.primitive.bind(*functions, *values, **params)
    return list(outputs) if equation.primitive.multiple_results else [outputs]
