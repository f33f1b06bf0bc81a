"""A run against an opponent: another run, one of its tags, random play, or a rule; nothing is learned.

several policies    one team plays with the run's policy, all others with the opponent's
self-play           the run's newest params on one side, the opponent on the other, and the other way round
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import EnvSpec, Spec, describe
from weft.core.types import Acted, Timestep, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.by_agent import for_agents
from weft.runtimes.policies.evaluate import Evaluation, evaluate_policy
from weft.runtimes.policies.payoffs import won_by
from weft.runtimes.policies.policy import END, Policy
from weft.runtimes.policies.run import Run
from weft.runtimes.policies.teams import TeamPolicies


class Match(NamedTuple):
    """What came of it: of a team its returns; of two equal sides the share of games that were won, a draw is half."""

    policy: str  # that played for the run; empty where it has but one
    games: int
    returns: Evaluation | None  # of the policy's team, where there are teams
    won: float | None  # where there are two equal sides


def play_against(
    run: Run, opponent: Run | Algorithm, *, policy: str = "", episodes: int, seed: int, greedy: bool = True
) -> Match:
    """Play ``episodes`` episodes; blocks. ``policy`` is the run's that plays, the first unless named.

    An opponent that is an algorithm does not learn and has no params (``Random``, ``Scripted``). Raises ConfigError
    where the two cannot meet.
    """
    assert run.source is not None
    if run.teams:
        return _teams(run, opponent, policy or next(iter(run.teams)), episodes, seed, greedy)
    algorithm, params = run._named(policy)
    if not hasattr(algorithm, "duel"):
        raise ConfigError(
            f"run {run.folder.name!r} has one policy for all agents of {run.source.name!r}: nobody is left to play "
            "against it. An opponent needs teams with policies of their own (weft.Policies), or self-play."
        )
    return _sides(run, algorithm, params, opponent, episodes, seed, greedy)


# ---- several policies ---------------------------------------------------------------------------------------------


def _teams(run: Run, opponent: Run | Algorithm, policy: str, episodes: int, seed: int, greedy: bool) -> Match:
    if policy not in run.teams:
        raise ConfigError(f"policy={policy!r}: run {run.folder.name!r} has the policies: {', '.join(run.teams)}")
    source = run.source
    assert source is not None
    team = run.teams[policy]
    players: dict[str, Policy] = {team: run.policy_for(policy=policy, greedy=greedy)}
    for other, spec in source.spec.teams.items():
        if other != team:
            players[other] = _player(opponent, other, spec, greedy)
    played = evaluate_policy(TeamPolicies(players), source, episodes=episodes, seed=seed, team=team)
    return Match(policy, played.episodes, played, None)


def _player(opponent: Run | Algorithm, team: str, spec: EnvSpec, greedy: bool) -> Policy:
    if isinstance(opponent, Algorithm):
        return Policy(_bound(opponent, spec), (), greedy=False)
    named = {where: name for name, where in opponent.teams.items()}
    if team not in named:
        known = ", ".join(named) or "none"
        raise ConfigError(
            f"the opponent, run {opponent.folder.name!r}, has no policy for team {team!r}; it has those of: {known}"
        )
    policy = opponent.policy_for(policy=named[team], greedy=greedy)
    _alike(opponent, policy.algorithm.spec.environment, spec)
    return policy


# ---- two equal sides ----------------------------------------------------------------------------------------------


def _sides(
    run: Run, algorithm: Any, params: Any, opponent: Run | Algorithm, episodes: int, seed: int, greedy: bool
) -> Match:
    group = algorithm.spec.environment
    ours, theirs = (algorithm._agents, params.newest), _side(opponent, group)
    team = "" if run.source is None or not run.source.spec.teams else next(iter(run.source.spec.teams))
    each, shares = math.ceil(episodes / 2), []
    for first, second in ((ours, theirs), (theirs, ours)):

        def duel(
            params: Any, lives: Any, timestep: Timestep, key: jax.Array, sides: Any = (first[0], second[0])
        ) -> tuple[Any, Tree]:
            acted = [
                _acts(side, params[k], lives[k], timestep, jax.random.fold_in(key, k), greedy)
                for k, side in enumerate(sides)
            ]
            return _halves(acted, len(group.agents)), tuple(one.carry for one in acted)

        lives = first[0].initial_carry(), second[0].initial_carry()
        assert run.source is not None
        shares.append(won_by(duel, lives, (first[1], second[1]), run.source, team=team, episodes=each, seed=seed))
    return Match("", 2 * each, None, (shares[0] + 1.0 - shares[1]) / 2)


def _side(opponent: Run | Algorithm, group: EnvSpec) -> tuple[Any, Any]:
    """What acts for all agents of a group, and its params."""
    if isinstance(opponent, Algorithm):
        return _bound(opponent, group), ()
    found: tuple[Any, Any] = (None, None) if opponent.teams else opponent._named("")
    algorithm, params = found
    if algorithm is None or not algorithm.spec.environment.agents:
        raise ConfigError(
            f"the opponent, run {opponent.folder.name!r}, has no one policy for all agents of {group.name!r}"
        )
    _alike(opponent, algorithm.spec.environment, group)
    if hasattr(algorithm, "duel"):
        return algorithm._agents, params.newest
    return algorithm, params


def _acts(side: Algorithm, params: Any, lives: Any, timestep: Timestep, key: jax.Array, greedy: bool) -> Acted:
    learned = bool(jax.tree.leaves(params))
    if greedy and learned:
        return side.greedy(params, lives, timestep)
    return side.act_at(params, lives, timestep, key, END)


def _halves(acted: list[Acted], agents: int) -> jax.Array:
    """The first half of the agents by the first, the others by the second."""
    one, other = (each.action.reshape((agents, -1)) for each in acted)
    first = (jnp.arange(agents) < agents // 2)[:, None]
    return jnp.where(first, one, other).reshape(acted[0].action.shape)


# ---- both ---------------------------------------------------------------------------------------------------------


def _bound(opponent: Algorithm, spec: EnvSpec) -> Algorithm:
    """An algorithm without params, for a team or a group."""
    made = replace(opponent, unroll=max(1, opponent.unroll))
    return for_agents(made, spec).bind(Spec(spec, 1, 1))


def _alike(opponent: Run, theirs: EnvSpec, ours: EnvSpec) -> None:
    for what, came, wanted in (
        ("sees", theirs.observation, ours.observation),
        ("does", theirs.native_action, ours.native_action),
    ):
        if describe(came) != describe(wanted):
            raise ConfigError(
                f"the opponent, run {opponent.folder.name!r} in {theirs.name!r}, {what} {describe(came)}, and here it "
                f"would be {describe(wanted)}: both must have been trained in the same environment, with its options"
            )
