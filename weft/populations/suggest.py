"""Values that Optuna chooses: members come in batches, and each batch is chosen by how those before it did.

What Optuna is told is what the population has recorded of its rounds, and a study is rebuilt from that every time. So a
choice depends on the seed and on the returns alone, and a sweep that was interrupted goes on to the same choices.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.errors import MissingExtra
from weft.populations.rules import Decision, best_first
from weft.populations.space import Choices, Interval, Space, Values

CUTS = 4, 2
"""A member that falls behind is stopped after a fourth or a half of its steps."""

STARTUP = 10
"""Members that are drawn at random before Optuna's model is asked, at most; a quarter of all where that is fewer."""


def require_optuna() -> Any:
    """The package ``optuna``, loaded. Raises MissingExtra where it is not installed."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("a sweep with how='optuna'", "optuna", "optuna") from None
    return optuna


@dataclass(frozen=True)
class Suggest:
    """Batch after batch: Optuna's sampler (TPE) chooses the values, its median pruner stops members that fall behind.

    Of each batch the best member goes on to its end, whatever the pruner says.
    """

    space: Space
    members: int
    batch: int
    steps: int  # of each member
    seed: int

    @property
    def ends(self) -> list[int]:
        """Env steps of a member at which its rounds end."""
        return sorted({max(1, self.steps // cut) for cut in CUTS} | {self.steps})

    def boundaries(self, steps: int) -> list[int]:
        """The rounds of every batch, one batch after another."""
        return self.ends * math.ceil(self.members / self.batch)

    def total(self, members: int, steps: int) -> int:
        """As many as if none were stopped."""
        return members * steps

    def first(self) -> list[Values]:
        """The values of the first batch, of which nothing is known."""
        return list(self._begins(0, {}, []).values())

    def decide(
        self,
        done: int,
        returns: Mapping[int, float],
        values: Mapping[int, Values],
        past: Sequence[Mapping[int, float]],
    ) -> Decision:
        """Within a batch, which members stop; at its end, the values of the next."""
        rounds = [*past, returns]
        batch, place = divmod(done - 1, len(self.ends))
        if place == len(self.ends) - 1:
            return Decision(finishes=tuple(sorted(returns)), begins=self._begins(batch + 1, values, rounds))
        with _quiet() as optuna:
            study = self._study(optuna, batch, values, rounds, batch * self.batch)
            pruner = optuna.pruners.MedianPruner(n_startup_trials=min(self.batch, STARTUP))
            behind = []
            for member in best_first(returns)[1:]:
                told = self._told(optuna, values[member], self._scores(member, rounds), ended=False)
                if pruner.prune(study, told):
                    behind.append(member)
        return Decision(stops=tuple(sorted(behind)))

    def _begins(
        self, batch: int, values: Mapping[int, Values], rounds: Sequence[Mapping[int, float]]
    ) -> dict[int, Values]:
        """The members of a batch, with values that are chosen by how the members of all batches before it did."""
        first = batch * self.batch
        with _quiet() as optuna:
            study = self._study(optuna, batch, values, rounds, first)
            kinds = distributions(optuna, self.space)
            # All are asked for before any is told: a batch is trained together.
            asked = [study.ask(kinds) for _ in range(min(self.batch, self.members - first))]
            return {first + k: self._values(trial.params) for k, trial in enumerate(asked)}

    def _study(
        self,
        optuna: Any,
        batch: int,
        values: Mapping[int, Values],
        rounds: Sequence[Mapping[int, float]],
        count: int,
    ) -> Any:
        """A study that knows the first ``count`` members, and chooses by a seed of this batch's own."""
        seed = int(np.random.SeedSequence([self.seed, batch]).generate_state(1)[0])
        startup = max(self.batch, min(STARTUP, self.members // 4))
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for member in range(count):
            study.add_trial(self._told(optuna, values[member], self._scores(member, rounds), ended=True))
        return study

    def _scores(self, member: int, rounds: Sequence[Mapping[int, float]]) -> dict[int, float]:
        """A member's returns by the round of its batch; rounds without a finite one are left out."""
        first = member // self.batch * len(self.ends)
        own = {k: found.get(member, math.nan) for k, found in enumerate(rounds[first : first + len(self.ends)])}
        return {k: score for k, score in own.items() if math.isfinite(score)}

    def _told(self, optuna: Any, values: Values, scores: Mapping[int, float], *, ended: bool) -> Any:
        """A member as a trial. One that was stopped, or has failed, counts as pruned: below all that were not."""
        states = optuna.trial.TrialState
        final = scores.get(len(self.ends) - 1)
        state = states.RUNNING if not ended else states.PRUNED if final is None else states.COMPLETE
        return optuna.trial.create_trial(
            state=state,
            value=final if state is states.COMPLETE else None,
            params={name: _to_optuna(self.space[name], value) for name, value in values.items()},
            distributions=distributions(optuna, self.space),
            intermediate_values=dict(scores),
        )

    def _values(self, params: Mapping[str, Any]) -> Values:
        return {name: _from_optuna(one, params[name]) for name, one in self.space.items()}


def distributions(optuna: Any, space: Space) -> dict[str, Any]:
    """The space in Optuna's words. A list's values are known to it by their places: they may be of any kind."""
    kinds = optuna.distributions
    found = {}
    for name, one in space.items():
        if isinstance(one, Choices):
            found[name] = kinds.CategoricalDistribution(tuple(range(len(one.values))))
        elif one.whole:
            found[name] = kinds.IntDistribution(math.ceil(one.low), math.floor(one.high), log=one.log)
        else:
            found[name] = kinds.FloatDistribution(one.low, one.high, log=one.log)
    return found


def _to_optuna(one: Interval | Choices, value: Any) -> Any:
    # A checkpoint is JSON, in which a tuple is a list.
    if isinstance(one, Choices):
        return next(k for k, known in enumerate(one.values) if known == value or _listed(known) == _listed(value))
    return min(max(value, one.low), one.high)


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, list | tuple) else value


def _from_optuna(one: Interval | Choices, value: Any) -> Any:
    return one.values[value] if isinstance(one, Choices) else one.kept(value)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Optuna, without its lines for every study, and without its warnings of what it calls experimental."""
    optuna = require_optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield optuna
    finally:
        optuna.logging.set_verbosity(before)
