"""What a store's code must have, and what a graph with a store in it says of how often things run.

A store takes unrolls when they come, and gives batches when learn wants them: so many for each unroll. Its code is an
object of settings with pure functions of its state, such as those of ``weft.replay``, or one of your own. Its state
lies in the program that learns; where it has a worker of its own, in a ``Home`` there.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax

from weft.core.errors import ConfigError
from weft.core.types import Array, Metrics, Tree
from weft.graph.fragment import Fragment, Schema
from weft.graph.graph import Graph


class Store(Protocol):
    """Settings, and functions that JAX can trace. ``unroll`` is a message that it takes, or the shapes of one."""

    def draws(self, unroll: Any) -> int:
        """Batches that are drawn for each unroll; at least 1."""
        ...

    def fills(self, unroll: Any) -> int:
        """Unrolls at a run's start that are only kept."""
        ...

    def init(self, unroll: Any, key: Array) -> Tree:
        """An empty state."""
        ...

    def insert(self, held: Tree, unroll: Any) -> Tree:
        """Keep an unroll."""
        ...

    def draw(self, held: Tree) -> tuple[Tree, Any]:
        """A batch; always of the same shapes."""
        ...

    def feedback(self, held: Tree, message: Any) -> Tree:
        """Take in what learn tells of a batch."""
        ...

    def waits(self, held: Tree) -> Array:
        """[] int32: unrolls from now on that are only kept; 0 once something is drawn."""
        ...

    def figures(self, held: Tree) -> Metrics:
        """What it counts: scalars by name."""
        ...

    def share(self, shards: int) -> Store:
        """What one of so many shards runs, which keep together what this one would keep."""
        ...


class LaneStore(Store, Protocol):
    """A store that can tell the unrolls of several lanes apart, which bring them in turn."""

    def of_lanes(self, lanes: int) -> Store:
        """What runs for so many lanes; its ``insert`` is also given ``same`` and ``lane``, as ``Home.insert`` is."""
        ...


class Home(Protocol):
    """A store in a worker of its own: its state lies here, and is changed in place."""

    @property
    def state(self) -> Tree:
        """As ``Store.init`` gives it. It may be views: save it before the next call."""
        ...

    def insert(self, unroll: Any, lane: int = 0, same: Any = True) -> None:
        """Keep an unroll of NumPy arrays; they are the caller's again afterwards.

        ``same`` (``[B]`` bool): False where it is known not to follow the newest unroll of its ``lane``.
        """
        ...

    def draw(self, into: Any) -> None:
        """Draw as many batches as ``into`` has room for (``[K, ...]`` NumPy arrays), one after the other."""
        ...

    def feedback(self, messages: Any) -> None:
        """Take in what learn tells of batches, ``[K, ...]`` NumPy arrays; they are the caller's again afterwards."""
        ...

    def waits(self) -> int:
        """Unrolls from now on that are only kept."""
        ...

    def figures(self) -> dict[str, float]:
        """What it counts."""
        ...


def of_learners(store: Store, learners: int) -> Store:
    """What one of several learners in one program has of a store: a shard, which draws its part of every batch."""
    part = getattr(store, "of_learners", None)  # a store of the user's own need not have it
    if part is None:
        raise ConfigError(
            f"{learners} learners are to share what {type(store).__name__} draws, which has no of_learners(learners) "
            "to say what one of them has. Give it one, or use one learner."
        )
    mine: Store = part(learners)
    return mine


def batch_schema(store: Store, unroll: Schema) -> Schema:
    """The shapes of what a store draws."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    held = jax.eval_shape(lambda key: store.init(unroll, key), key)
    return jax.eval_shape(lambda held: store.draw(held)[1], held)


def stores_of(graph: Graph) -> list[Fragment]:
    """The stores of a graph."""
    return [fragment for fragment in graph.fragments if fragment.role.stores]


def check_stores(graph: Graph, owner: str) -> None:
    """Raise ConfigError where nothing could be drawn from a store that can say so, for unrolls as the graph has them.

    ``owner`` names the algorithm. One of ours checks its replay itself; a user's may leave it to this.
    """
    for fragment in stores_of(graph):
        reward, check = getattr(fragment.inputs[0].schema, "reward", None), getattr(fragment.code, "check", None)
        if check is not None and reward is not None:
            check(owner, *reward.shape[:2])


def calls_for_each_unroll(graph: Graph) -> int:
    """How often learn runs for each unroll: once, or as often as a store says."""
    return max((f.code.draws(f.inputs[0].schema) for f in stores_of(graph)), default=1)


def unrolls_before_learning(graph: Graph) -> int:
    """Unrolls at a run's start that no learn call follows."""
    return max((f.code.fills(f.inputs[0].schema) for f in stores_of(graph)), default=0)


def stored_bytes(graph: Graph) -> dict[str, int]:
    """The memory that each store takes, in bytes, by its name."""
    from weft.graph.stream import schema_bytes

    key = jax.eval_shape(lambda: jax.random.key(0))
    return {
        f.name: schema_bytes(jax.eval_shape(lambda key, f=f: f.code.init(f.inputs[0].schema, key), key))
        for f in stores_of(graph)
    }
