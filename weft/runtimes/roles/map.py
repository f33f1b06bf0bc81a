"""The role of a fragment of your own: messages in, messages out, none, one or several for each.

Pure, it is fused into the program of what follows it in its group, or compiled by itself; host code is called with
NumPy arrays. It may have a state, and may read the newest params of whatever publishes some.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weft.core.errors import GraphError
from weft.core.types import Array, Tree
from weft.graph.fragment import Fragment, MapCode, Schema
from weft.graph.graph import Graph, naming, schema_difference, step_messages
from weft.runtimes.roles.role import MessageRole
from weft.runtimes.stage import Ran, Stage


class MapRole(MessageRole):
    """How a map runs."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """Its form for one process, and for the side of a worker."""
        code: MapCode = fragment.code
        ports = {port.name: port.schema for port in fragment.outputs}
        read = [s.name for name in code.reads for s in graph.into(fragment.name) if s.source == name]

        def init(key: Array) -> Tree:
            with naming(fragment.name):
                return code.init(key) if code.init is not None else ()

        def run(state: Tree, inputs: dict[str, Tree], params: dict[str, Tree], given: Array) -> Ran:
            message = next(iter(inputs.values())) if len(inputs) == 1 else inputs
            with naming(fragment.name):
                given_back = code.step(state, message, *(params[name] for name in read))
            state, messages = step_messages(fragment.name, given_back)
            if fragment.pure:
                # A copy: a compiled function hands unchanged inputs through, and a host's buffers are written again.
                state = jax.tree.map(jnp.copy, state)
            by_port = _by_port(fragment, messages)
            for port, several in by_port.items():
                for found in several:
                    _check(fragment, ports[port], found)
            return Ran(state, by_port)

        return Stage(init, run, pure=fragment.pure)


def _by_port(fragment: Fragment, messages: list[Tree]) -> dict[str, list[Tree]]:
    """The messages of each output port; with several ports a message is a dict by port."""
    if len(fragment.outputs) == 1:
        return {fragment.outputs[0].name: messages}
    return {port.name: [m[port.name] for m in messages if port.name in m] for port in fragment.outputs}


def _check(fragment: Fragment, declared: Schema, message: Tree) -> None:
    """Refuse a message that is not what the fragment declares. The number of environments is the message's own."""
    found = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), _dtype(x)), message)
    difference = schema_difference(declared, found)
    if difference and str(jax.tree.structure(declared)) == str(jax.tree.structure(found)):
        like = jax.tree.map(lambda want, have: have if _fits(want, have) else want, declared, found)
        difference = schema_difference(like, found) or ("" if _one_change(declared, found) else difference)
    if difference:
        what = "gives" if fragment.pure else "declares (gives=...)"
        raise GraphError(
            f"fragment {fragment.name!r} gave a message that is not what it {what}: {difference}. Return the declared "
            "shapes and dtypes, or declare what you return."
        )


def _dtype(x: Any) -> Any:
    """An array's own dtype, which JAX's rules would make a double a single; a Python number's is JAX's default."""
    return x.dtype if hasattr(x, "dtype") else jnp.result_type(x)


def _fits(want: Any, have: Any) -> bool:
    """Whether two shapes differ in one axis at most, the environments'."""
    return len(want.shape) == len(have.shape) and want.dtype == have.dtype and len(_changes(want, have)) <= 1


def _changes(want: Any, have: Any) -> list[tuple[int, int]]:
    return [(a, b) for a, b in zip(want.shape, have.shape, strict=True) if a != b]


def _one_change(declared: Schema, found: Schema) -> bool:
    """Whether all leaves that have an axis of the environments have another number of them, and the same."""
    pairs = list(zip(jax.tree.leaves(declared), jax.tree.leaves(found), strict=True))
    changes = {change for want, have in pairs for change in _changes(want, have)}
    kept = {size for want, have in pairs if not _changes(want, have) for size in want.shape}
    return len(changes) == 1 and not any(before in kept for before, _ in changes)


MAP = MapRole()
