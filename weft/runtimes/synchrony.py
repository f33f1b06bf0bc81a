"""Synchrony: when a lane may begin an unroll, which messages make a batch, what is too old. One object answers.

Lockstep: each learn call eats exactly the unrolls that were made with the current params, in the order of the
environments, so that the result does not depend on the plan. Bounded lag: producers run ahead, by ``max_lag`` versions
at most. But for ``prepare`` no other file knows which it is. Loads no JAX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from weft.core.keys import host_seed


@dataclass(frozen=True)
class Lockstep:
    """Every stage waits for the others: nothing runs ahead."""

    max_lag: int = 0

    ahead: int = 1  # unrolls that a lane may have under way
    in_order: bool = True  # a batch is the next message of each lane, in the order of the environments
    whole_batches: bool = True  # inference waits for all its lanes, and a map for all of its own
    one_params: bool = True  # an unroll is made by one version of the params, which is also the learner's own
    still: bool = True  # between two learn calls nothing moves: lanes can be saved exactly
    each_gradient_counts: bool = False  # an update averages the gradients of all replicas
    told_first: bool = True  # a store draws again when it has been told of what it drew before

    def may_begin(self, version: int, after: int, limit: int) -> bool:
        """Whether a lane may begin an unroll with params of ``version`` (-1: none have come).

        ``after`` is the version that follows what became of its last unroll; ``limit`` learn steps are granted.
        """
        return after <= version < limit

    def too_old(self, lag: int, max_lag: int) -> bool:
        """Whether a sample that is ``lag`` versions behind is dropped on arrival: never, nothing runs ahead."""
        return False

    def seed(self, seed: int, resumed: int, life: int) -> int:
        """The seed of environments and noise: always the run's own, since everything goes on from where it stood."""
        return seed


@dataclass(frozen=True)
class BoundedLag:
    """Producers run ahead of the learner by at most ``max_lag`` versions."""

    max_lag: int = 1

    in_order: bool = False
    whole_batches: bool = False
    one_params: bool = False
    still: bool = False
    each_gradient_counts: bool = True
    told_first: bool = False

    @property
    def ahead(self) -> int:
        """Unrolls that a lane may have under way."""
        return self.max_lag + 1

    def may_begin(self, version: int, after: int, limit: int) -> bool:
        """As soon as there are params."""
        return version >= 0

    def too_old(self, lag: int, max_lag: int) -> bool:
        """Beyond ``max_lag`` versions; below 0 it was made by params that died with their learner."""
        return not 0 <= lag <= max_lag

    def seed(self, seed: int, resumed: int, life: int) -> int:
        """A new seed for later lives of a worker and of the run, so that the same episodes are not played again."""
        if resumed:
            seed = host_seed(seed, 2**32 + resumed)
        return host_seed(seed, 2**31 + life) if life else seed


Synchrony: TypeAlias = Lockstep | BoundedLag


def synchrony(lockstep: bool, max_lag: int) -> Synchrony:
    """Lockstep, or a bound of ``max_lag`` versions."""
    return Lockstep() if lockstep else BoundedLag(max_lag)
