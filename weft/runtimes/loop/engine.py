"""What the local runtime asks of an engine: advance by some learn calls, and be saved and brought back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from weft.core.types import TrainState, Tree
from weft.envs.guards import Trouble
from weft.runtimes.watcher import Look
from weft.telemetry.ledger import Ledger

Episode = tuple[int, float, int]
"""A slice of finished episodes in time order: how many, the sum of their returns, the sum of their lengths."""


class Report(NamedTuple):
    """What some learn calls brought; with several seeds everything has a seed axis where said."""

    learn_steps: int  # of each learner
    env_steps: int  # that the environments made meanwhile, counted where they are made; all seeds together
    metrics: dict[str, np.ndarray[Any, Any]]  # each [learn_steps] or [learn_steps, seeds]
    episodes: list[list[Episode]]  # in time order; a list for each seed, or for each policy; one where there is one
    finite: bool  # False: a reward, a metric or a param was not a finite number; the params before it were kept
    rewards_finite: bool  # False: the environment gave such a reward
    cut_again: bool  # True: an environment truncated twice within its own max_episode_steps
    shares: dict[str, float]  # seconds by stage, where the engine can tell
    produced: int = 0  # samples that were made meanwhile, where the engine keeps no ledger: env steps of each policy
    trained: int = 0  # samples that were trained on meanwhile, likewise
    samples: Ledger | None = None  # since the run began, where the engine keeps it
    restarts: int = 0  # of workers, since the last report
    figures: dict[str, float] = {}  # noqa: RUF012  what else is shown and logged: lag, the queues' fill
    learned: np.ndarray[Any, Any] | None = None  # [learn_steps] or [learn_steps, seeds] bool; False: it was refused
    kept: bool = True  # False: the params themselves are not finite, and what was before them is gone
    whole: np.ndarray[Any, Any] | None = None  # [] or [seeds] bool: ``kept`` of each seed, where the engine can tell
    troubles: tuple[Trouble, ...] = ()  # what environments met and did not end the run
    unmade: int = 0  # learn steps that were asked for and not made: a store was being filled
    looks: tuple[Look, ...] = ()  # of what looks on in workers
    streams: dict[str, dict[str, float]] = {}  # noqa: RUF012  between workers: messages a second, bytes of one


class WorkerState(NamedTuple):
    """A worker as it is at this moment."""

    name: str
    stages: tuple[str, ...]  # of its sides
    busy: tuple[float, ...]  # of each of these, the part of its time that it works; empty where not known
    state: str  # starting, ready, gone, or given up
    life: int  # 0: the first
    pid: int  # 0: it has no process
    device: str


class Trained(NamedTuple):
    """Where every engine's saved state has what was learned: the params alone are the same whatever the plan was."""

    fragments: dict[str, TrainState]


class StateLost(RuntimeError):
    """A worker that held the learner's state is gone: ``resume`` from what was saved last, or ``start`` again."""


class Engine(Protocol):
    """Runs every fragment of the graph: as one group in this process, or as several in workers.

    An ``asynchronous`` engine's ``advance`` returns before the work is over, so that the host can read an earlier
    report. ``warn`` is called with what a user should know, ``check`` while a start or a resume waits for others: it
    raises where the run is to end, and ``inspect`` is the folder for batches that were refused. The loop sets these.
    """

    warn: Callable[[str], None]
    check: Callable[[], None]
    inspect: Path | None

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

        The tree has ``fragments``, the states of the graph's fragments by name; what else it has is the engine's own.

        The document of an engine with workers has its ledger, ``samples``, its ``learn_steps`` and
        ``env_steps``, and the ``restarts`` and ``troubles`` since the last report.
        """
        ...

    def advance(self, learn_steps: int) -> Callable[[], Report]:
        """Start some learn calls, and return at once where the device allows; the result waits for them."""
        ...

    def last_looks(self) -> tuple[Look, ...]:
        """At the end: what looks on in workers has found, after a wait for a little while; none in one process."""
        ...

    def train_states(self) -> dict[str, TrainState]:
        """The states of the fragments that publish params, by name; valid until the next ``advance``."""
        ...

    def progress(self) -> int | None:
        """Grows while host code in this thread makes progress; None where something else watches over it."""
        ...

    def awaited(self) -> str:
        """What a run that is to end waits for, in words. Both may be called by another thread."""
        ...

    def close(self) -> None:
        """Free the environments; may be called twice."""
        ...


@runtime_checkable
class TellsOfWorkers(Protocol):
    """An engine with workers. It calls ``on_workers`` where one starts, is ready or is gone; the loop sets it."""

    on_workers: Callable[[], None]

    def workers(self) -> list[WorkerState]:
        """All of them, in the order of the plan."""
        ...

    def streams_of_late(self) -> dict[str, dict[str, float]]:
        """What passed between workers in the last few seconds, as ``Report.streams`` has it."""
        ...


def is_key(leaf: Any) -> bool:
    """Whether an array holds PRNG keys."""
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def params_of(states: dict[str, TrainState]) -> Tree:
    """The params of a run: a learner's own, or by policy where there are several."""
    if len(states) == 1:
        return next(iter(states.values())).params
    return {name.partition(".")[2] or name: state.params for name, state in states.items()}
