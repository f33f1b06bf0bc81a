"""What becomes of the members after each round: decisions from returns, with no I/O.

| rule | rounds | after each |
|---|---|---|
| Together | one, to the end | nothing |
| Halving | one for each halving: each member has made twice the steps of the round before | the better half goes on |
| Exploit | every so many steps | the worst quarter copies the best quarter, and explores |
| Suggest (`suggest.py`) | three for each batch of members | those behind stop; at a batch's end the next begins |

Halving is successive halving (Jamieson and Talwalkar, arXiv 1502.07943); Exploit is population based training
(Jaderberg et al., arXiv 1711.09846) with truncation selection. A member whose return is not a number (it has diverged,
or no episode has ended) is worse than any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from weft.populations.space import Space, Values, explored

QUARTER = 0.25
"""The share of members that copy, and the share that is copied."""


@dataclass(frozen=True)
class Decision:
    """What is done after a round."""

    copies: dict[int, int] = field(default_factory=dict)  # the member that copies, and the one that it copies
    values: dict[int, Values] = field(default_factory=dict)  # of members whose values change
    stops: tuple[int, ...] = ()  # members that are trained no further
    finishes: tuple[int, ...] = ()  # members that are at their end, while others are not
    begins: dict[int, Values] = field(default_factory=dict)  # members that have waited, and begin with these values


class Rule(Protocol):
    """How a population is trained."""

    def boundaries(self, steps: int) -> list[int]:
        """Env steps, of each member that is trained then, at which rounds end; the last is ``steps``."""
        ...

    def total(self, members: int, steps: int) -> int:
        """Env steps of so many members together, at most."""
        ...

    def decide(
        self,
        done: int,
        returns: Mapping[int, float],
        values: Mapping[int, Values],
        past: Sequence[Mapping[int, float]],
    ) -> Decision:
        """After round ``done`` (from 1), not the last: ``returns`` are of the members still trained.

        ``values`` are of all that have begun; ``past`` has the returns of the rounds before, where there were any.
        """
        ...


class Together:
    """All members to the end."""

    def boundaries(self, steps: int) -> list[int]:
        """One round."""
        return [steps]

    def total(self, members: int, steps: int) -> int:
        """All of them, to the end."""
        return members * steps

    def decide(
        self,
        done: int,
        returns: Mapping[int, float],
        values: Mapping[int, Values],
        past: Sequence[Mapping[int, float]] = (),
    ) -> Decision:
        """Nothing."""
        return Decision()


@dataclass(frozen=True)
class Halving:
    """The better half goes on, until one is left."""

    members: int

    def boundaries(self, steps: int) -> list[int]:
        """Each twice the one before, so that every round but the first costs as much as any other."""
        rounds = max(1, math.ceil(math.log2(self.members)))
        return sorted({max(1, steps >> k) for k in range(rounds + 1)})

    def total(self, members: int, steps: int) -> int:
        """Half as many members in each round."""
        left, before, total = members, 0, 0
        for end in self.boundaries(steps):
            total += left * (end - before)
            before, left = end, max(1, left // 2)
        return total

    def decide(
        self,
        done: int,
        returns: Mapping[int, float],
        values: Mapping[int, Values],
        past: Sequence[Mapping[int, float]] = (),
    ) -> Decision:
        """Stop the worse half; of an odd number the larger half."""
        order = best_first(returns)
        return Decision(stops=tuple(sorted(order[max(1, len(order) // 2) :])))


@dataclass(frozen=True)
class Exploit:
    """Every so many steps the worst copy the best and explore from there."""

    space: Space
    every: int
    seed: int

    def boundaries(self, steps: int) -> list[int]:
        """Every ``every`` steps, and the end."""
        return [*range(self.every, steps, self.every), steps]

    def total(self, members: int, steps: int) -> int:
        """All of them, to the end."""
        return members * steps

    def decide(
        self,
        done: int,
        returns: Mapping[int, float],
        values: Mapping[int, Values],
        past: Sequence[Mapping[int, float]] = (),
    ) -> Decision:
        """The worst quarter copy members of the best quarter, drawn by chance; none where no return is known.

        A member copies only one that is better. What is drawn depends on the seed and the round alone, so that a run
        that was interrupted goes on to the same decisions.
        """
        random = np.random.default_rng([self.seed, done])
        order = best_first(returns)
        count = max(1, int(QUARTER * len(order)))
        best = [k for k in order[:count] if math.isfinite(returns[k])]
        copies, changed = {}, {}
        for member in order[-count:] if best else []:
            source = best[int(random.integers(len(best)))]
            if not (returns[member] >= returns[source]):
                copies[member] = source
                changed[member] = explored(self.space, values[source], random)
        return Decision(copies, changed)


def best_first(returns: Mapping[int, float]) -> list[int]:
    """Members by return, the highest first; those without one last; equals by number."""
    known = {k: value if math.isfinite(value) else -math.inf for k, value in returns.items()}
    return sorted(known, key=lambda k: (-known[k], k))
