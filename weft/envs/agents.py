"""What a PettingZoo environment is for Weft: its agents in groups, each group with one spec; several are teams.

The rule: agents belong together where their names begin alike and their spaces are equal. What a name begins with is
the name without the number at its end: ``adversary_0`` and ``adversary_1`` are ``adversary``. One group alone is the
whole environment, and there is no team; several are teams with these names. Where agents whose names begin alike have
different spaces, each of their groups is named like its first agent.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.errors import ConfigError, EnvironmentFault
from weft.core.specs import Box, EnvSpec, SpaceTree, describe
from weft.envs.masks import KEY
from weft.envs.spaces import action_spec, native_layout, observation_spec

AgentId: TypeAlias = Hashable
"""By which an environment knows an agent; text as a rule."""

_NUMBERED = re.compile(r"(.*?)[_\- ]?\d+$", re.DOTALL)


class AgentSpaces(NamedTuple):
    """One agent's spaces, as the environment has them."""

    observation: gym.Space[Any]  # without the mask
    action: gym.Space[Any]
    beside: tuple[str, ...]  # parts of a Dict observation beside the mask; empty where the mask is not in it

    def own(self, given: Any) -> Any:
        """An observation without the mask."""
        if not self.beside or not isinstance(given, Mapping):
            return given
        return given.get("observation") if self.beside == ("observation",) else {k: given.get(k) for k in self.beside}


def spaces_of(name: str, env: Any, agent: AgentId) -> AgentSpaces:
    """An agent's spaces; a Dict with the part ``action_mask`` is taken apart, as PettingZoo means it.

    Of ``{observation, action_mask}`` the observation alone is left, of others a Dict without the mask.
    """
    seen, done = env.observation_space(agent), env.action_space(agent)
    for what, space in (("observation_space", seen), ("action_space", done)):
        if not isinstance(space, gym.Space):
            raise EnvironmentFault(
                f"environment {name!r}: {what}({agent!r}) is a {type(space).__name__}, expected a gymnasium.Space"
            )
    if not isinstance(seen, gym.spaces.Dict) or KEY not in seen.spaces:
        return AgentSpaces(seen, done, ())
    rest = {part: space for part, space in seen.spaces.items() if part != KEY}
    if not rest:
        raise EnvironmentFault(f"environment {name!r}: agent {agent!r} observes its {KEY!r} and nothing else")
    own = rest["observation"] if list(rest) == ["observation"] else gym.spaces.Dict(rest)
    return AgentSpaces(own, done, tuple(rest))


def state_space_of(env: Any) -> gym.Space[Any] | None:
    """The space of the environment's ``state()``; None where it has none."""
    space = getattr(env, "state_space", None)
    return space if isinstance(space, gym.Space) else None


def agents_of(name: str, env: Any) -> list[AgentId]:
    """All agents that may ever take part."""
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ConfigError(
            f"environment {name!r} has no possible_agents, and Weft must know who may take part before it starts. "
            "Set possible_agents in __init__."
        )
    if len({str(agent) for agent in agents}) < len(agents):
        raise EnvironmentFault(f"environment {name!r}: possible_agents has a name more than once: {agents}")
    return agents


def agents_spec(
    name: str, env: Any, masked: frozenset[AgentId], *, changing: bool = True, state: bool = True
) -> EnvSpec:
    """The spec of a parallel environment, which was made and not stepped.

    ``masked`` are the agents that have masks although their observation spaces do not say so. Where agents are
    ``changing``, what one sees may be zeros too, and its Boxes say so.
    """
    seen_by_all = state_space_of(env) if state else None
    told = None if seen_by_all is None else observation_spec(seen_by_all, name, "state")
    specs: dict[AgentId, EnvSpec] = {}
    for agent in agents_of(name, env):
        specs[agent] = _agent_spec(name, env, agent, agent in masked, changing)
    groups = {
        team: EnvSpec.of_agents(
            name, specs[agents[0]], [str(agent) for agent in agents], state=told, changing=changing, pure=False
        )
        for team, agents in teams_of(specs).items()
    }
    return next(iter(groups.values())) if len(groups) == 1 else EnvSpec.of_teams(name, groups)


def check_spaces(name: str, env: Any, spec: EnvSpec) -> None:
    """Raise EnvironmentFault where an environment has other agents or spaces than ``spec``, the first's."""
    expected = {agent: group.agent for group in groups_of(spec).values() for agent in group.agents}
    came = [str(agent) for agent in agents_of(name, env)]
    if sorted(came) != sorted(expected):
        raise EnvironmentFault(
            f"environment {name!r}: one of a batch has the agents {', '.join(came)}, but the first that was made had "
            f"{', '.join(expected)}. All environments of a batch need the same."
        )
    for agent in agents_of(name, env):
        one = expected[str(agent)]
        assert one is not None
        own = _agent_spec(name, env, agent, one.action_mask, False)
        for what, now, first in (
            ("observes", own.observation, one.observation),
            ("acts by", own.native_action, one.native_action),
        ):
            if describe(now) != describe(first):
                raise EnvironmentFault(
                    f"environment {name!r}: agent {agent!r} {what} {describe(now)}, but in the first environment "
                    f"that was made {describe(first)}. All environments of a batch need the same spaces."
                )


def groups_of(spec: EnvSpec) -> Mapping[str, EnvSpec]:
    """The groups by their team; of a single group the team is empty."""
    return spec.teams or {"": spec}


def _agent_spec(name: str, env: Any, agent: AgentId, masked: bool, changing: bool) -> EnvSpec:
    spaces = spaces_of(name, env, agent)
    who = f"{name} (agent {agent})"
    native = action_spec(spaces.action, who)
    masked = masked or bool(spaces.beside)
    if masked and isinstance(native, Box):
        raise EnvironmentFault(
            f"environment {name!r}: agent {agent!r} has an {KEY!r}, but a Box of actions has no choices to mask"
        )
    seen = observation_spec(spaces.observation, who)
    start, _ = native_layout(spaces.action)  # several axes of an action are given back to it in ``joint.py``
    flat_start = start if np.ndim(start) == 0 else np.ravel(start).tolist()
    spec = EnvSpec(name, seen, native, action_mask=masked, action_start=flat_start)
    return replace(spec, observation=_with_zero(seen)) if changing else spec


def _with_zero(tree: SpaceTree) -> SpaceTree:
    """The same with 0 within every Box: what is seen of an agent that takes no part."""
    match tree:
        case tuple():
            return tuple(_with_zero(part) for part in tree)
        case Box(low=low, high=high):
            below, above = np.minimum(low, 0), np.maximum(high, 0)
            return replace(tree, low=_plain(below), high=_plain(above))
        case Mapping():
            return {key: _with_zero(part) for key, part in tree.items()}
        case _:
            return tree


def _plain(bound: Any) -> Any:
    return bound.item() if np.ndim(bound) == 0 else bound


def teams_of(specs: Mapping[AgentId, EnvSpec]) -> dict[str, list[AgentId]]:
    """The groups by their names, in the order of their first agents."""
    groups: list[tuple[str, EnvSpec, list[AgentId]]] = []
    for agent, spec in specs.items():
        begins = _beginning(str(agent))
        for prefix, alike, members in groups:
            if prefix == begins and alike == spec:
                members.append(agent)
                break
        else:
            groups.append((begins, spec, [agent]))
    prefixes = [prefix for prefix, _, _ in groups]
    named: dict[str, list[AgentId]] = {}
    for prefix, _, members in groups:
        name = re.sub(r"\W", "_", prefix if prefixes.count(prefix) == 1 else str(members[0]))
        name = name if name[:1].isalpha() else f"agent_{name}"
        while name in named:
            name += "_"
        named[name] = members
    return named


def _beginning(name: str) -> str:
    found = _NUMBERED.match(name)
    return (found[1] if found else name) or "agent"
