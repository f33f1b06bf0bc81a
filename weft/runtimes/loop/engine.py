"""What the local runtime asks of an engine: advance by some learn calls, and be saved and brought back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from weft.core.errors import GraphError
from weft.core.keys import fragment_key
from weft.core.types import Array, Metrics, TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.telemetry.ledger import Ledger

Episode = tuple[int, float, int]
"""A slice of finished episodes in time order: how many, the sum of their returns, the sum of their lengths."""


class Report(NamedTuple):
    """What some learn calls brought; with several seeds everything has a seed axis where said."""

    learn_steps: int
    metrics: dict[str, np.ndarray[Any, Any]]  # each [learn_steps] or [learn_steps, seeds]
    episodes: list[list[Episode]]  # for each seed (one list where there is a single one), in time order
    finite: bool  # False: a reward, a metric or a param was not a finite number; the params before it were kept
    rewards_finite: bool  # False: the environment gave such a reward
    cut_again: bool  # True: an environment truncated twice within its own max_episode_steps
    shares: dict[str, float]  # seconds by stage, where the engine can tell
    samples: Ledger | None = None  # since the run began, where the engine keeps it; None: all produced was trained on
    restarts: int = 0  # of workers, since the last report
    figures: dict[str, float] = {}  # noqa: RUF012  what else is shown and logged: lag, the queues' fill
    streams: dict[str, dict[str, float]] = {}  # noqa: RUF012  between workers: messages a second, bytes of one


class StateLost(RuntimeError):
    """A worker that held the learner's state is gone: load the last checkpoint, and ``resume`` or ``start`` again."""


class Engine(Protocol):
    """Runs every fragment of the graph: as one group in this process, or as several in workers.

    An ``asynchronous`` engine's ``advance`` returns before the work is over, so that the host can read an earlier
    report. ``warn`` is called with what a user should know of; whoever shows it sets it.
    """

    warn: Callable[[str], None]

    @property
    def asynchronous(self) -> bool:
        """Whether ``advance`` returns early."""
        ...

    def start(self) -> None:
        """Begin from nothing."""
        ...

    def resume(self, tree: Tree, document: dict[str, Any]) -> list[str]:
        """Go on from what ``saved`` gave; returns what could not be brought back exactly.

        After StateLost, called again: what is still alive goes on.
        """
        ...

    def template(self) -> Tree:
        """The structure, shapes and dtypes of ``saved``'s tree."""
        ...

    def saved(self) -> tuple[Tree, dict[str, Any]]:
        """Everything that an exact resume needs: arrays, and a JSON document. Waits for what is under way.

        The document of an engine with workers has its ledger, ``samples``, and the ``restarts`` since the last report.
        """
        ...

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Start some learn calls, and return at once where the device allows; the result waits for them."""
        ...

    def train_state(self) -> TrainState:
        """The learner's state now; valid until the next ``advance``."""
        ...

    def close(self) -> None:
        """Free the environments; may be called twice."""
        ...


class Finite(NamedTuple):
    """Whether one learn call met only finite numbers."""

    learned: Array  # [] bool: in rewards, metrics and params; if not, the params before it were kept
    rewards: Array  # [] bool: in the rewards, as the environment gave them


class Stages(NamedTuple):
    """The fragments between act and learn, and learn itself, as one pure function."""

    init: Callable[[Array], tuple[TrainState, tuple[Tree, ...]]]
    learn: Callable[[TrainState, tuple[Tree, ...], Tree], tuple[TrainState, tuple[Tree, ...], Metrics, Finite]]


def make_stages(algorithm: Algorithm, graph: Graph) -> Stages:
    """What happens to an unroll: the user's fragments in order, then learn; refused where anything is not finite."""
    import jax.numpy as jnp

    from weft.core.replicas import mean_over_replicas

    fragments = graph.on_stream("unroll")
    elsewhere = [f.name for f in graph.fragments if f.step is not None and f not in fragments]
    if elsewhere:
        raise GraphError(
            f"fragment {elsewhere[0]!r} is not on the stream 'unroll', the only one on which this version runs "
            "fragments of your own. Insert it with on='unroll'."
        )

    def init(seed: Array) -> tuple[TrainState, tuple[Tree, ...]]:
        states = tuple(f.init(fragment_key(seed, f.name)) if f.init else () for f in fragments)
        return algorithm.init(fragment_key(seed, "learn")), states

    def learn(
        train: TrainState, states: tuple[Tree, ...], unroll: Tree
    ) -> tuple[TrainState, tuple[Tree, ...], Metrics, Finite]:
        new_states = []
        given = mean_over_replicas(unroll.reward.sum())
        for fragment, state in zip(fragments, states, strict=True):
            assert fragment.step is not None  # Graph.insert sees to it
            state, unroll = fragment.step(state, unroll)
            # A copy: a compiled function hands unchanged inputs through, and the host's buffers will be written again.
            new_states.append(jax.tree.map(jnp.copy, state))
        new, metrics = algorithm.learn(train, unroll)
        # A sum is finite only if all its parts are; so is a mean over replicas. Bad data must not reach the weights.
        finite = jnp.isfinite(given + mean_over_replicas(sum(jnp.asarray(m, jnp.float32) for m in metrics.values())))
        params = jax.tree.map(lambda now, before: jnp.where(finite, now, before), new.params, train.params)
        return new._replace(params=params), tuple(new_states), metrics, Finite(finite, jnp.isfinite(given))

    return Stages(init, learn)


def all_finite(params: Tree) -> Array:
    """[] bool: whether every number in ``params`` is finite. An update may overflow although its loss did not."""
    import jax.numpy as jnp

    checks = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack(checks).all() if checks else jnp.bool_(True)


def is_key(leaf: Any) -> bool:
    """Whether an array holds PRNG keys."""
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))
