"""The agents of an environment by name, and which policy acts for which: by patterns of their names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from weft.core.errors import ConfigError
from weft.core.specs import EnvSpec, describe


class Member(NamedTuple):
    """An agent: its name, where the environment has it, and what it sees and does."""

    name: str
    team: str  # of the environment's own; empty where it has one group alone
    row: int | None  # among the team's agents; None where it is the team's only one, and has no axis
    spec: EnvSpec


def policy_name(pattern: str) -> str:
    """What a policy is called in streams and metrics, by its pattern: ``hider*`` is ``hider``."""
    return re.sub(r"[\W_]+", "_", pattern).strip("_") or "agents"


def members_of(spec: EnvSpec) -> list[Member]:
    """Every agent of an environment, in its order. Raises ConfigError where there is but one."""
    teams: dict[str, EnvSpec] = dict(spec.teams) or ({"": spec} if spec.agents else {})
    found: list[Member] = []
    for team, group in teams.items():
        if group.agent is None:
            found.append(Member(team, team, None, group))
        else:
            found += [Member(name, team, row, group.agent) for row, name in enumerate(group.agents)]
    if not found:
        raise ConfigError(
            f"environment {spec.name!r} has one agent, and policies by pattern are for several. Give the algorithm "
            "itself."
        )
    if len({member.name for member in found}) < len(found):  # teams that name their agents alike
        found = [m._replace(name=f"{m.team}.{m.name}" if m.row is not None else m.name) for m in found]
    return found


def assigned(spec: EnvSpec, patterns: Iterable[str]) -> dict[str, list[Member]]:
    """The agents that each policy acts for, by the policy's name.

    A pattern, as of file names (``*``, ``?``, ``[ab]``), matches an agent by its name or by its team's. Every agent
    must be matched by exactly one, every pattern must match an agent, and agents of one policy must see and do alike;
    else ConfigError.
    """
    known, found = members_of(spec), list(dict.fromkeys(patterns))
    where = f"environment {spec.name!r}"
    names = _listed([m.name for m in known])
    if not found:
        raise ConfigError(
            f"{where}: no policies were given, and its agents are {names}. Give one for each: --policy PATTERN=ALGO, "
            'or weft.Policies({"PATTERN": algorithm}).'
        )
    groups: dict[str, list[Member]] = {}
    for pattern in found:
        matched = [m for m in known if _matches(m, pattern)]
        if not matched:
            raise ConfigError(f"{where}: policy {pattern!r} matches no agent. Its agents are {names}.")
        if policy_name(pattern) in groups:
            raise ConfigError(
                f"{where}: two policies would be called {policy_name(pattern)!r}. Write {pattern!r} in another way."
            )
        groups[policy_name(pattern)] = matched
    for member in known:
        by = [pattern for pattern in found if _matches(member, pattern)]
        if len(by) != 1:
            none = f"none of {', '.join(map(repr, found))} matches"
            said = f"{' and '.join(map(repr, by))} match" if by else none
            raise ConfigError(f"{where}: {said} agent {member.name!r}. Each agent needs exactly one policy.")
    for name, matched in groups.items():
        first = matched[0]
        for other in matched[1:]:
            if _spaces(other.spec) != _spaces(first.spec):
                raise ConfigError(
                    f"{where}: policy {name!r} is for agents that see or do different things: {_words(first)}, and "
                    f"{_words(other)}. Give them policies of their own."
                )
    return groups


def _matches(member: Member, pattern: str) -> bool:
    return fnmatch.fnmatchcase(member.name, pattern) or bool(member.team and fnmatch.fnmatchcase(member.team, pattern))


def _spaces(spec: EnvSpec) -> tuple[Any, ...]:
    return spec.observation, spec.native_action, spec.action_mask


def _words(member: Member) -> str:
    spec = member.spec
    return f"{member.name!r} sees {describe(spec.observation)} and does {describe(spec.native_action)}"


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
