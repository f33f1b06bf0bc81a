"""A run that has ended, or one read back from its folder: its summary, its params, its policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from weft.core.errors import ConfigError
from weft.core.types import Tree
from weft.envs.protocol import EnvSource
from weft.graph.algorithm import Algorithm
from weft.graph.frozen import Frozen
from weft.runtimes.actors import actors_of
from weft.runtimes.policies.policy import Policy
from weft.runtimes.policies.teams import TeamPolicies


@dataclass(frozen=True, repr=False)
class Run:
    """What ``weft.train`` returns."""

    folder: Path
    algorithm: Algorithm  # bound
    params: Tree  # NumPy; with several seeds each leaf has a seed axis in front; with several policies a dict of theirs
    summary: dict[str, Any]
    seeds: int = 0
    source: EnvSource | None = field(default=None, repr=False, compare=False)  # the environment it was trained in
    _policies: dict[tuple[int, str], Policy] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        """One line: the folder, what was trained in what, how far, how well."""
        told = self.summary
        parts = [" in ".join(str(told[name]) for name in ("algorithm", "environment") if name in told)]
        if "env_steps" in told:
            parts.append(f"{told['env_steps']:,} env steps")
        if self.seeds:
            parts.append(f"{self.seeds} seeds")
        mean = told.get("return_mean")
        if mean is not None and math.isfinite(mean):
            parts.append(f"return {mean:.1f}")
        if told.get("exit") not in (None, "finished"):
            parts.append(str(told["exit"]))
        return f"Run({str(self.folder)!r}: {', '.join(part for part in parts if part) or 'no summary yet'})"

    def policy(self, observation: Tree, action_mask: Any = None, *, seed: int = 0, policy: str = "") -> Any:
        """The greedy action for an observation, or for a batch of them; ``seed`` counts from 0 where there are several.

        ``policy`` names one of several. Remembers from call to call where the policy is recurrent:
        ``run.policy_for(seed).reset()`` begins an episode. Raises ConfigError where the run has no such seed or policy.
        """
        return self.policy_for(seed, policy=policy)(observation, action_mask)

    def policy_for(self, seed: int = 0, *, greedy: bool = True, policy: str = "") -> Policy:
        """The policy of one seed, counted from 0, or one of several, as an object of its own.

        Raises ConfigError where the run has no such seed or policy.
        """
        trained = max(self.seeds, 1)
        if seed not in range(trained):
            known = "one seed: seed=0 is its policy" if trained == 1 else f"{trained} seeds: seed=0 to {trained - 1}"
            raise ConfigError(f"seed={seed}: run {self.folder.name!r} was trained with {known}, whatever --seed was")
        algorithm, params = self._named(policy)
        if self.seeds:
            params = jax.tree.map(lambda x: x[seed], params)
        if not greedy:
            return Policy(algorithm, params, greedy=False)
        if (seed, policy) not in self._policies:
            self._policies[seed, policy] = Policy(algorithm, params)
        return self._policies[seed, policy]

    def frozen(self, policy: str = "", *, greedily: bool = False) -> Frozen:
        """The run's policy, or one of several, as one that does not learn: to play with or against it.

        It draws actions as it explored at the run's end, or takes the likeliest ones.
        """
        algorithm, params = self._named(policy)
        if self.seeds:
            raise ConfigError(f"run {self.folder.name!r} has {self.seeds} seeds: a frozen policy is made of one")
        of = getattr(algorithm, "of", algorithm) if algorithm.spec.environment.agents else algorithm
        return Frozen(unroll=algorithm.unroll, of=of, params=params, greedily=greedily)

    def record(self, folder: str | Path, *, steps: int = 10_000, explore: bool = False, seed: int | None = None) -> Any:
        """Play in fresh environments, write what happened as a data set into a new folder, and return it.

        At least ``steps`` steps are played, greedily, or as the policy explored at its run's end. ``seed`` is that of
        the episodes; unless given, the run's. Of several seeds the first plays. Returns a ``weft.Dataset``.
        """
        from weft.data.files import check_free
        from weft.runtimes.policies.record import record_steps

        if self.source is None:
            raise ConfigError(f"run {self.folder.name!r} was loaded for its policy only: load it with its environment")
        check_free(Path(folder))  # before anything is played
        named = ("algorithm", "env_steps", "learn_steps")
        told: dict[str, Any] = {name: self.summary[name] for name in named if name in self.summary}
        at = int(self.summary["seed"]) if seed is None else seed
        told |= {"run": self.folder.name, "explore": explore, "seed": at}
        data = record_steps(self.policy_for(greedy=not explore), self.source, steps=steps, seed=at, recorded=told)
        data.save(folder)
        return data

    def export(
        self, folder: str | Path | None = None, *, formats: Sequence[str] = (), seed: int = 0, policy: str = ""
    ) -> dict[str, Any]:
        """Write the policy as a folder that runs without Weft, and return its manifest; blocks while it is checked.

        ``folder`` is the run's ``export/`` unless given; an export that is there is replaced. ``formats`` are of
        "numpy" and "stablehlo"; unless given, all that can be written here. ``seed`` and ``policy`` are
        ``policy_for``'s. Each format is compared with the policy before it is put there: RunError says where one
        differs, ConfigError what cannot be exported, MissingExtra what to install.
        """
        from weft.runtimes.policies.export import export_policy
        from weft.runtimes.policies.export_check import check_export

        acting = self.policy_for(seed, policy=policy)
        own = Policy(acting.algorithm, acting.params)  # the check must not disturb what the caller's remembers
        told = {"run": self.folder.name, "policy": policy, "seed": seed}
        told |= {name: self.summary.get(name) for name in ("algorithm", "env_steps", "learn_steps")}
        players = self.together() if self.teams and self.source is not None else None
        team = self.teams.get(policy, "")

        def check(made: Path, kept: Sequence[str]) -> dict[str, Any]:
            return check_export(made, kept, own, self.source, players, team)

        return export_policy(own, Path(folder or self.folder / "export"), formats, told, check)

    @property
    def teams(self) -> dict[str, str]:
        """The team that each of several policies acts for, by the policy's name; empty where there is one policy."""
        actors = actors_of(self.algorithm.graph())
        return {actor.name.partition(".")[2]: actor.team for actor in actors} if len(actors) > 1 else {}

    def together(self, *, greedy: bool = True) -> TeamPolicies:
        """All of several policies, to play with each other."""
        return TeamPolicies({team: self.policy_for(greedy=greedy, policy=name) for name, team in self.teams.items()})

    def _named(self, policy: str) -> tuple[Algorithm, Tree]:
        """The algorithm and the params of a policy; of the only one, unless named."""
        actors = {actor.name.partition(".")[2]: actor for actor in actors_of(self.algorithm.graph())}
        if len(actors) == 1 and not policy:
            return next(iter(actors.values())).algorithm, self.params
        if policy not in actors or len(actors) == 1:
            known = ", ".join(name for name in actors if name) or "one, without a name"
            raise ConfigError(f"policy={policy!r}: run {self.folder.name!r} has the policies: {known}")
        return actors[policy].algorithm, self.params[policy]
