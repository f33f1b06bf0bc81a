"""Evaluation in the run: every so many env steps the newest params play whole episodes, and nothing is learned.

The episodes are those of ``weft eval``, the same each time, so that versions are compared by the same luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax

from weft.core.types import Timestep
from weft.envs.protocol import EnvSource, HostEnv
from weft.runtimes.actors import actors_of, params_legs
from weft.runtimes.policies.evaluate import Evaluation, evaluate_policy, host_factory
from weft.runtimes.policies.interval import interval_of_mean
from weft.runtimes.policies.policy import Policy
from weft.runtimes.policies.teams import TeamPolicies
from weft.runtimes.watcher import Looked, Seen, WatchContext

EVALUATE = "evaluate"
"""The name of the fragment that the settings ``eval_every`` and so on set beside a graph: what a plan calls it."""


@dataclass(frozen=True)
class Evaluate:
    """The code of a fragment that plays ``episodes`` episodes every so many env steps, greedily or not."""

    every: int
    episodes: int = 20
    sample: bool = False

    def watcher(self, context: WatchContext) -> Evaluator:
        """What plays."""
        return Evaluator(self, context)


class Evaluator:
    """Plays with programs and, where they are in JAX, environments that are compiled once."""

    def __init__(self, how: Evaluate, context: WatchContext) -> None:
        self._how, self._context = how, context
        self._source = replace(context.source, pure=None, host=_Playground(context.source, context.check))
        graph = context.graph
        legs = params_legs(graph)
        self._players = {
            actor.name.partition(".")[2]: _Player(
                Policy(actor.algorithm, None, greedy=not how.sample), actor.team, _publisher(graph, *legs[actor.name])
            )
            for actor in actors_of(graph)
        }

    def __call__(self, seen: Seen) -> Looked:
        """Play; returns by series, a seed or a policy, and over all of them."""
        results = dict(self._play(seen))
        returns = [value for result in results.values() for value in result.returns]
        low, high = interval_of_mean(returns)
        mean = sum(result.return_mean for result in results.values()) / len(results)
        figures = {
            "eval/return_mean": mean,
            "eval/return_low": low,
            "eval/return_high": high,
            "eval/episodes": len(returns),
            "eval/length_mean": sum(result.length_mean for result in results.values()) / len(results),
            "eval/version": seen.version,
        }
        if len(results) > 1:
            figures |= {f"eval/return_mean/{label}": result.return_mean for label, result in results.items()}
        return Looked(figures, mean if math.isfinite(mean) else None)

    def _play(self, seen: Seen) -> Iterator[tuple[str, Evaluation]]:
        how: dict[str, Any] = {"episodes": self._how.episodes, "seed": self._context.seed}
        if len(self._players) > 1:  # all play in each, so that all of these are of the same episodes
            for name, player in self._players.items():
                for each in self._players.values():
                    each.policy.take(seen.params[each.source])
                together = TeamPolicies({each.team: each.policy for each in self._players.values()})
                yield name, evaluate_policy(together, self._source, team=player.team, **how)
            return
        (player,) = self._players.values()
        params = seen.params[player.source]
        for k in range(max(self._context.seeds, 1)):
            player.policy.take(jax.tree.map(lambda x, k=k: x[k], params) if self._context.seeds else params)
            yield str(k), evaluate_policy(player.policy, self._source, **how)


@dataclass(frozen=True)
class _Player:
    policy: Policy
    team: str
    source: str  # the fragment that publishes its params


class _Playground:
    """Makes the environments of each look; what steps them calls ``check`` each time.

    A batch of JAX environments may be begun again: it is kept, so that it is compiled once. A host environment may not.
    """

    def __init__(self, source: EnvSource, check: Callable[[], None]) -> None:
        self._source, self._check = source, check
        self._kept: dict[tuple[int, int], HostEnv] = {}

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> Any:
        made = self._kept.get((num_envs, seed)) or host_factory(self._source)(num_envs, seed, first_index, render)
        if self._source.pure is not None:
            self._kept[num_envs, seed] = made
        return _Heeding(made, self._check)


class _Heeding:
    """A host environment that calls ``check`` at each step."""

    def __init__(self, env: HostEnv, check: Callable[[], None]) -> None:
        self._env, self._check = env, check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, action: Any, out: Timestep) -> None:
        self._check()
        self._env.step(action, out)


def _publisher(graph: Any, source: str, stream: str) -> str:
    """The fragment whose params an act gets, behind any maps on their way: what a checkpoint holds, and plays."""
    while not graph.fragment(source).role.publishes:
        source = next(s.source for s in graph.into(source) if s.name == stream)
    return str(source)
