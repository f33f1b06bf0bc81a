"""What the half of a role that runs must have; and the base of roles that take messages and give messages.

    stage(fragment, graph) -> Stage    its form as a function, for one process and for programs that it is fused into
    side(task, side) -> Running        how it runs in a worker

What a role counts and saves follows from its side. ``MessageRole`` has a side for any stage, so that a role of your own
need not write more than ``stage``.
"""

from __future__ import annotations

from typing import Any

from weft.core.errors import GraphError
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph
from weft.runtimes.stage import Stage


class MessageRole:
    """A role whose fragments make messages of messages. Derive from it, and write ``stage``."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """A fragment as a function of its state, its messages and the params that it reads."""
        raise GraphError(f"{type(self).__name__} must define stage(self, fragment, graph) -> weft.Stage")

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker: collects messages, runs the stage, sends what it gives, and accounts for all of it."""
        from weft.runtimes.roles.message_side import MessageSide

        return MessageSide(task, side)
