"""The role of a replay: unrolls in; batches out, as often as its ratio says; what learn tells of them back in.

A fragment of this role has a ``weft.graph.store.Store`` as its code.
"""

from __future__ import annotations

from typing import Any

from weft.core.types import Array, Tree
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph
from weft.graph.store import Store
from weft.runtimes.stage import Draws, Ran, Stage


class StoreRole:
    """How a store runs: in the program of what follows it; in a worker of its own by itself."""

    def stage(self, fragment: Fragment, graph: Graph) -> Stage:
        """Keep what comes; draw from it."""
        store: Store = fragment.code
        (out,) = fragment.outputs
        taken = next(s for s in graph.into(fragment.name) if s.counted)

        def init(key: Array) -> Tree:
            return store.init(taken.schema, key)

        def run(held: Tree, inputs: dict[str, Tree], params: dict[str, Tree], given: Array) -> Ran:
            held = store.insert(held, inputs[taken.name])
            return Ran(held, {}, store.figures(held))

        def draw(held: Tree) -> tuple[Tree, dict[str, Tree]]:
            held, batch = store.draw(held)
            return held, {out.name: batch}

        def tell(held: Tree, messages: dict[str, Tree]) -> Tree:
            for message in messages.values():
                held = store.feedback(held, message)
            return held

        times = store.draws(taken.schema)

        def ahead(held: Tree) -> tuple[Tree, dict[str, Tree]] | None:
            several = getattr(store, "draw_ahead", None)  # a store of the user's own need not have it
            found = None if several is None or times == 1 else several(held, times)
            return None if found is None else (found[0], {out.name: found[1]})

        return Stage(init, run, draws=Draws(times, draw, tell, store.waits, ahead))

    def side(self, task: Any, side: Any) -> Any:
        """Its side in a worker, apart from what follows it."""
        from weft.runtimes.roles.store_side import StoreSide

        return StoreSide(task, side)


STORE = StoreRole()
