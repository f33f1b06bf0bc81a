"""A run that has ended, or one read back from its folder: its summary, its params, its policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from weft.core.errors import ConfigError
from weft.core.types import Tree
from weft.envs.protocol import EnvSource
from weft.graph.algorithm import Algorithm
from weft.runtimes.policies.policy import Policy


@dataclass(frozen=True)
class Run:
    """What ``weft.train`` returns."""

    folder: Path
    algorithm: Algorithm  # bound
    params: Tree  # NumPy; with several seeds each leaf has a seed axis in front
    summary: dict[str, Any]
    seeds: int = 0
    source: EnvSource | None = field(default=None, repr=False, compare=False)  # the environment it was trained in
    _policies: dict[int, Policy] = field(default_factory=dict, repr=False, compare=False)

    def policy(self, observation: Tree, action_mask: Any = None, *, seed: int = 0) -> Any:
        """The greedy action for an observation, or for a batch of them; ``seed`` counts from 0 where there are several.

        Remembers from call to call where the policy is recurrent: ``run.policy_for(seed).reset()`` begins an episode.
        Raises ConfigError where the run has not so many seeds.
        """
        return self.policy_for(seed)(observation, action_mask)

    def policy_for(self, seed: int = 0, *, greedy: bool = True) -> Policy:
        """The policy of one seed, counted from 0, as an object of its own. Raises ConfigError where there is none."""
        trained = max(self.seeds, 1)
        if seed not in range(trained):
            known = "one seed: seed=0 is its policy" if trained == 1 else f"{trained} seeds: seed=0 to {trained - 1}"
            raise ConfigError(f"seed={seed}: run {self.folder.name!r} was trained with {known}, whatever --seed was")
        if not greedy:
            return Policy(self.algorithm, self._params_of(seed), greedy=False)
        if seed not in self._policies:
            self._policies[seed] = Policy(self.algorithm, self._params_of(seed))
        return self._policies[seed]

    def _params_of(self, seed: int) -> Tree:
        return jax.tree.map(lambda x: x[seed], self.params) if self.seeds else self.params
