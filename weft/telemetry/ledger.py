"""The sample ledger: produced = trained + dropped (by reason) + in flight, always, after any fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Ledger:
    """Counts of samples (one sample is one env step of one environment).

    Each count comes from where it happens: ``produced`` at act, ``trained`` at learn (once for each sample, however
    many epochs it is used for), ``dropped`` where it is dropped, ``in_flight`` by those who hold samples. None is
    derived from the others, so that ``balanced`` can be false.
    """

    produced: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    in_flight: int = 0

    def produce(self, count: int) -> None:
        """Count samples that act made."""
        self.produced += count

    def train(self, count: int) -> None:
        """Count samples that learn ate."""
        self.trained += count

    def drop(self, reason: str, count: int) -> None:
        """Count samples that nobody will train on, by reason: ``stale``, ``worker died``."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    @property
    def missing(self) -> int:
        """How many samples are unaccounted for; below zero where some were counted twice."""
        return self.produced - self.trained - sum(self.dropped.values()) - self.in_flight

    @property
    def balanced(self) -> bool:
        """Whether every sample is accounted for, once."""
        return self.missing == 0

    def merge(self, other: Ledger) -> None:
        """Add another ledger's counts, such as a worker's."""
        self.produced += other.produced
        self.trained += other.trained
        self.in_flight += other.in_flight
        for reason, count in other.dropped.items():
            self.drop(reason, count)

    def to_json(self) -> dict[str, Any]:
        """The counts, as the summary's ``samples`` and a checkpoint have them."""
        return {
            "produced": self.produced,
            "trained": self.trained,
            "dropped": dict(sorted(self.dropped.items())),
            "in_flight": self.in_flight,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Ledger:
        """The ledger that ``to_json`` gave."""
        return cls(saved["produced"], saved["trained"], dict(saved["dropped"]), saved["in_flight"])
