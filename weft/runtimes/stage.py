"""What a role gives of each of its fragments: a stage, the fragment as a function of its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from weft.core.errors import GraphError
from weft.core.types import Array, Metrics, Tree
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph

Leg: TypeAlias = tuple[str, str]
"""A stream between two fragments: the one that writes it, and the stream's name."""
States: TypeAlias = dict[str, Tree]
"""The states of fragments, by their names."""


class Finite(NamedTuple):
    """Whether a learn call met only finite numbers."""

    learned: Array  # [] bool: in rewards, metrics and params; if not, the params before it were kept
    rewards: Array  # [] bool: in the rewards, as the environment gave them


class Ran(NamedTuple):
    """What a stage made of one message."""

    state: Tree
    messages: dict[str, list[Tree]] = {}  # noqa: RUF012  by output port
    metrics: Metrics | None = None  # of a learn call
    finite: Finite | None = None  # likewise


class Stage(NamedTuple):
    """One fragment as a function of its state.

    ``init(key) -> state``. ``run(state, inputs, params, given) -> Ran``: ``inputs`` are its messages by port,
    ``params`` the newest of each fragment that it reads, by port, and ``given`` the sum of the rewards as the
    environment gave them. ``params(state)`` is what it publishes. A stage that is not ``pure`` is host code on NumPy
    arrays. One that keeps what it takes has ``draws``.
    """

    init: Callable[[Any], Tree]
    run: Callable[[Tree, dict[str, Tree], dict[str, Tree], Array], Ran]
    params: Callable[[Tree], Tree] | None = None
    pure: bool = True
    draws: Draws | None = None  # of a store


class Draws(NamedTuple):
    """The second half of a stage that keeps what it takes: what follows it runs so many ``times`` for each message.

    ``draw(state) -> (state, messages by port)``. ``tell(state, messages by port) -> state`` takes what comes back to it
    from there. ``waits(state)`` is how many messages, from now on, nothing is drawn after: ``[]`` int32.
    ``ahead(state)``, where nothing comes back, is all draws in one go, ``[times, ...]``, or None: on a GPU each gather
    is a kernel, however little it gathers.
    """

    times: int
    draw: Callable[[Tree], tuple[Tree, dict[str, Tree]]]
    tell: Callable[[Tree, dict[str, Tree]], Tree]
    waits: Callable[[Tree], Array]
    ahead: Callable[[Tree], tuple[Tree, dict[str, Tree]] | None] = lambda state: None


def stage_of(fragment: Fragment, graph: Graph) -> Stage:
    """What a fragment's role makes of it."""
    code = fragment.role.code()
    stage: Stage | None = code.stage(fragment, graph) if hasattr(code, "stage") else None
    if stage is None:
        raise GraphError(
            f"fragment {fragment.name!r} has the role {fragment.role_name!r}, which has no form for one process. Give "
            "it a group of its own."
        )
    return stage
