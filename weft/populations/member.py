"""A member of a population: the run that it would be by itself, its values, and how far it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.errors import EnvironmentFault
from weft.graph.by_agent import for_agents
from weft.graph.store import unrolls_before_learning
from weft.populations.space import Values
from weft.runtimes.loop.bad_steps import IN_A_ROW, BadSteps
from weft.runtimes.loop.counters import Counters
from weft.runtimes.loop.engine import Report
from weft.runtimes.prepare.config import Prepared

ENOUGH = 10
"""Episodes in a round from which a member is ranked by those alone."""


@dataclass
class Member:
    """One individual. ``prepared`` is a run of its own, with its values and its seed."""

    index: int
    values: Values
    prepared: Prepared
    counters: Counters
    stopped: bool = False  # by the rule: it is trained no further
    waiting: bool = False  # it has no values yet
    finished: bool = False  # trained to its end and written, while others are not
    failed: str = ""  # why it is worth nothing any more: its numbers stopped being finite
    prepare: Callable[[Values], Prepared] | None = None  # where values may set its sizes
    since: tuple[int, float] = (0, 0.0)  # episodes that have ended since its last round, and their returns added up
    _bad: BadSteps = field(default_factory=BadSteps, repr=False)

    @property
    def name(self) -> str:
        """Its folder's name."""
        return member_name(self.index)

    @property
    def live(self) -> bool:
        """Whether it is being trained, or is at its end together with all others."""
        return not (self.stopped or self.waiting or self.finished)

    @property
    def return_mean(self) -> float:
        """Over its last 100 episodes; NaN before the first, and where it has failed."""
        return math.nan if self.failed else self.counters.return_mean

    @property
    def recent_return(self) -> float:
        """What it is ranked by: the mean over the episodes since its last round; over more where these are few."""
        count, total = self.since
        return total / count if count >= ENOUGH and not self.failed else self.return_mean

    def take(self, report: Report) -> None:
        """Count what it has done; one whose numbers stop being finite has failed.

        Raises EnvironmentFault where the environment breaks its own contract: no member could be trusted.
        """
        self.counters.take(report)
        if report.cut_again:
            spec = self.prepared.source.spec
            raise EnvironmentFault(
                f"environment {spec.name!r} truncated an episode twice within one unroll, although its spec says "
                f"max_episode_steps={spec.max_episode_steps}. If it truncates for other reasons too, set "
                "max_episode_steps to None in its EnvSpec."
            )
        for count, total, _ in report.episodes[0]:
            self.since = self.since[0] + count, self.since[1] + total
        in_a_row = self._bad.take(report.learned)[1] if report.learned is not None else 0
        if not report.kept:
            self.failed = "its params stopped being finite"
        elif not report.rewards_finite:
            self.failed = "its environment gave a reward that is not a finite number"
        elif in_a_row >= IN_A_ROW:
            self.failed = f"{IN_A_ROW} learn steps in a row met a number that is not finite"

    def become(self, source: Member | None, values: Values) -> None:
        """Go on with other values; from where ``source`` is, where it copies one: its returns are those of its params.

        What ``source`` has learned from is finite, so a member that has failed begins again with it.
        """
        self.values, self.prepared = values, with_values(self.prepared, values)
        if source is not None:
            self.counters.windows = [type(w).from_json(w.to_json()) for w in source.counters.windows]
            self.failed, self._bad = "", BadSteps()

    def begin(self, values: Values) -> None:
        """Begin with these values, after it has waited. Raises ConfigError where the algorithm refuses them."""
        self._take_values(values)
        self.counters = Counters(self.prepared.series, warm_up=self.prepared.warm_up)
        self.waiting = False

    def _take_values(self, values: Values) -> None:
        self.values = values
        self.prepared = self.prepare(values) if self.prepare is not None else with_values(self.prepared, values)

    def learn_steps_at(self, steps: int) -> int:
        """Learn steps that it has made once it has made ``steps`` env steps."""
        prepared = self.prepared
        unrolls = math.ceil(min(steps, prepared.steps) / prepared.steps_per_learn)
        return max(0, unrolls - unrolls_before_learning(prepared.graph)) * prepared.calls_for_each_unroll

    def to_document(self) -> dict[str, Any]:
        """What a checkpoint has of it, besides its arrays."""
        return {
            "values": self.values,
            "counters": self.counters.to_document(),
            "stopped": self.stopped,
            "waiting": self.waiting,
            "finished": self.finished,
            "failed": self.failed,
            "since": list(self.since),
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Go on from what ``to_document`` gave."""
        self.stopped, self.failed = document["stopped"], document["failed"]
        # A checkpoint of an older Weft has neither.
        self.waiting, self.finished = document.get("waiting", False), document.get("finished", False)
        self.since = int(document["since"][0]), float(document["since"][1])
        self._take_values(document["values"])
        self.counters = Counters.from_document(document["counters"], self.prepared.series, self.prepared.warm_up)


def member_name(index: int) -> str:
    """The name of a member's folder in its population's."""
    return f"member-{index:02d}"


def with_values(prepared: Prepared, values: Values) -> Prepared:
    """A prepared run with other values of its algorithm's fields, which leave its sizes as they are.

    Raises ConfigError where the algorithm refuses them.
    """
    written = prepared.written.with_fields(**values)
    algorithm = for_agents(written, prepared.source.spec).bind(prepared.algorithm.spec)
    return dataclasses.replace(prepared, written=written, algorithm=algorithm, graph=algorithm.graph())


def row_of(report: Report, row: int, rows: int) -> Report:
    """What a report of several members has of one."""
    learned = None if report.learned is None else np.asarray(report.learned)[:, row]
    return report._replace(
        env_steps=report.env_steps // rows,
        metrics={name: values[:, row] for name, values in report.metrics.items()},
        episodes=[report.episodes[row]],
        produced=report.produced // rows,
        trained=report.trained // rows,
        learned=learned,
        kept=True if report.whole is None else bool(np.asarray(report.whole)[row]),
    )
