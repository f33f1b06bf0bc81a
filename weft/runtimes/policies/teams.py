"""Several policies that play together, one for each team of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.core.buffers import of_team
from weft.core.specs import EnvSpec
from weft.core.types import Timestep
from weft.runtimes.policies.policy import Policy


class TeamPolicies:
    """What a ``Policy`` is for one player, for all teams at once: actions are a dict by team."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.policies = dict(policies)

    def reset(self) -> None:
        """Forget: the next call begins an episode."""
        for policy in self.policies.values():
            policy.reset()

    def act(self, timestep: Timestep) -> Any:
        """Each team's actions for a ``[B, ...]`` timestep of all, as policies see them."""
        return {team: policy.act(of_team(timestep, team)) for team, policy in self.policies.items()}


def as_players(policy: Policy | TeamPolicies, spec: EnvSpec) -> tuple[Policy | TeamPolicies, str]:
    """Who plays in environments of a spec, and whose returns count: a single policy's only team, as in self-play."""
    if isinstance(policy, TeamPolicies) or not spec.teams:
        return policy, ""
    (team,) = spec.teams
    return TeamPolicies({team: policy}), team
