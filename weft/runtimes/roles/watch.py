"""The role of a fragment that looks on: the newest params in, every so many versions; figures and a score out.

Nothing waits for it, and nothing that is trained depends on it. In one process the loop calls it between two
dispatches; in a worker it has a side of its own, which takes the newest params whenever they are due.
"""

from __future__ import annotations

from typing import Any

from weft.core.errors import GraphError
from weft.graph.fragment import Fragment
from weft.runtimes.watcher import WatchContext, Watcher


class WatchRole:
    """How a fragment that looks on runs."""

    def watcher(self, fragment: Fragment, context: WatchContext) -> Watcher:
        """What looks, made where it will run."""
        make = getattr(fragment.code, "watcher", None)
        if not callable(make):
            raise GraphError(
                f"fragment {fragment.name!r} looks on, and its code, a {type(fragment.code).__name__}, has no "
                "watcher(context), which gives what looks"
            )
        watcher: Watcher = make(context)
        return watcher

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker."""
        from weft.runtimes.roles.watch_side import WatchSide

        return WatchSide(task, side)


WATCH = WatchRole()
