"""What a role that looks on gives of each of its fragments: a watcher, a function of the newest params.

A fragment that looks on has an object as its code with ``every``, the environment steps from one look to the next, and
``watcher(context) -> Watcher``, called once where it runs: in this process between two dispatches, or in a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from weft.core.errors import GraphError
from weft.core.types import Tree
from weft.envs.protocol import EnvSource
from weft.graph.fragment import Fragment
from weft.graph.graph import Graph, naming


class WatchContext(NamedTuple):
    """What a watcher is told of its run."""

    graph: Graph
    source: EnvSource  # the environment; a watcher makes its own of it
    seed: int  # the run's
    seeds: int = 0  # trained side by side; the params then have an axis of them in front
    check: Callable[[], None] = lambda: None
    """To be called now and then by a look that takes long: says that it makes progress, and raises at the run's end."""


class Seen(NamedTuple):
    """What a watcher is given to look at."""

    version: int  # learn steps that made the params
    env_steps: int  # environment steps, for each seed, that these learn steps are due after
    params: dict[str, Tree]  # by the fragment that publishes them; NumPy arrays, not to be written into


class Looked(NamedTuple):
    """What a watcher found: ``figures`` are shown and logged under their names, once.

    Where there is a ``score``, the higher the better, the params of the highest yet are kept as the tag ``best``.
    """

    figures: dict[str, float]
    score: float | None = None


class Watcher(Protocol):
    """A fragment's look at params; it may remember from look to look what need not outlive its process."""

    def __call__(self, seen: Seen) -> Looked:
        """Look; blocks until it has found what it wants to know."""
        ...


class Look(NamedTuple):
    """One look that was made."""

    fragment: str
    seen: Seen
    looked: Looked
    seconds: float


class Pace(NamedTuple):
    """How versions follow from environment steps in a run: when params are to be looked at."""

    steps_per_learn: int  # environment steps, for each seed, of an unroll of all environments
    calls: int  # learn steps that follow each such unroll
    before: int  # such unrolls before the first learn step, which fill a store
    total: int  # learn steps of the run

    def between(self, every: int) -> int:
        """Learn steps from one look to the next, of ``every`` env steps: those of whole unrolls."""
        return max(1, round(every / self.steps_per_learn)) * self.calls

    def steps_until(self, version: int) -> int:
        """Environment steps, for each seed, after which params of a version are due."""
        return (-(-version // self.calls) + self.before) * self.steps_per_learn

    def is_due(self, version: int, last: int, every: int) -> bool:
        """Whether params are to be looked at: a stretch has begun since the ``last`` that were, or the run ended."""
        between = self.between(every)
        return version // between > last // between or version >= self.total > last


def look(fragment: Fragment, watcher: Watcher, seen: Seen) -> Look:
    """Have a fragment's watcher look. Raises GraphError where what it gives is no ``Looked``."""
    began = time.perf_counter()
    with naming(fragment.name):
        looked: Any = watcher(seen)
    if not isinstance(looked, Looked):
        raise GraphError(
            f"fragment {fragment.name!r}: a watcher returns weft.Looked(figures, score), got {type(looked).__name__}"
        )
    return Look(fragment.name, seen, looked, time.perf_counter() - began)
