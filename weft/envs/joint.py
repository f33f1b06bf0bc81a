"""One PettingZoo environment as one Gymnasium environment, which the vectoriser steps, guards and replays like others.

Its observation is the whole tree that ``EnvSpec.of_agents`` and ``of_teams`` promise, in the spec's shapes and dtypes;
its action is one flat float32 vector, the native actions of all agents one after another. Gymnasium has one reward and
one mask; those of the agents are read from ``rewards`` and ``mask``.

An agent takes part from when the environment names it in ``agents`` until it is terminated or truncated. The episode
ends when nobody is left: truncated where any of the last ones was truncated (those are present in the final
observation, and what would have followed has a value for them alone), else terminated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, SpaceTree, allocate
from weft.core.trees import tree_leaves
from weft.envs.agents import AgentId, AgentSpaces, check_spaces, groups_of, spaces_of, state_space_of
from weft.envs.masks import KEY, dimension_starts, mask_row
from weft.envs.observations import LARGEST, Misfit, ObservationWriter, is_flag, shorten

NDArray: TypeAlias = np.ndarray[Any, Any]

SEEDS = 2**31 - 1
"""Every episode after the first is seeded from the environment's own generator, below this."""


@dataclass(frozen=True)
class Place:
    """Where an agent's part of everything lies."""

    team: str
    row: int  # in its group
    index: int  # of its reward, among all agents
    action: slice  # of the flat vector
    mask: slice  # of the joint mask
    spaces: AgentSpaces
    spec: EnvSpec  # one agent's
    writer: ObservationWriter
    starts: NDArray | None  # of the dimensions in its mask

    def native(self, flat: NDArray) -> Any:
        """Its action, as its own space has it."""
        space = self.spaces.action
        if isinstance(space, gym.spaces.Discrete):
            return space.dtype.type(flat[self.action][0])
        return flat[self.action].astype(space.dtype).reshape(space.shape or ())


class JointEnv(gym.Env[Any, Any]):
    """A parallel PettingZoo environment ``env`` (or a ``TurnGame``) that is as ``spec`` says.

    Raises Misfit where it breaks its contract, with the agent named.
    """

    def __init__(self, name: str, env: Any, spec: EnvSpec) -> None:
        check_spaces(name, env, spec)
        self.env, self._spec = env, spec
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space = gym_space(spec.observation)
        self._places = places(name, env, spec)
        size = sum(place.action.stop - place.action.start for place in self._places.values())
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        first = next(iter(groups_of(spec).values())).observation
        self._fixed = "present" not in first  # type: ignore[operator]
        space = state_space_of(env) if "state" in first else None  # type: ignore[operator]
        self._state = None if space is None else ObservationWriter(space)
        self._masked = any(place.spec.action_mask for place in self._places.values())
        self._takes_turns = hasattr(env, "mover")
        self._live: list[AgentId] = []
        self._gone: set[AgentId] = set()
        self.rewards = np.zeros(len(self._places), np.float32)  # [agents] of the last step; none where it raised
        self.mask = np.ones(max(place.mask.stop for place in self._places.values()), np.bool_)  # what is allowed next

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode, from ``seed`` or from one that is drawn; so that an episode can be played again."""
        super().reset(seed=seed)
        gave = self.env.reset(seed=int(self.np_random.integers(SEEDS)) if seed is None else seed)
        if not isinstance(gave, tuple) or len(gave) != 2 or not all(isinstance(part, Mapping) for part in gave):
            raise Misfit(f"reset gave {_words(gave)}, expected (observations, infos), dicts by agent")
        self._gone = set()
        self._live = self._known(self.env.agents)
        if not self._live:
            raise Misfit("after reset there is nobody in agents")
        self._check_fixed()
        self._allow(*gave)
        return self._look(self._live, gave[0]), {}

    def step(self, action: NDArray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of all agents that take part; its reward here is always 0, those of the agents are ``rewards``."""
        self.rewards = np.zeros_like(self.rewards)  # first: a step that raises gave none
        acted = self._live
        gave = self.env.step({agent: self._places[agent].native(action) for agent in acted})
        if not isinstance(gave, tuple) or len(gave) != 5 or not all(isinstance(part, Mapping) for part in gave):
            raise Misfit(
                f"step gave {_words(gave)}, expected (observations, rewards, terminations, truncations, infos), dicts "
                "by agent"
            )
        observations, rewards, terminations, truncations, infos = gave

        def ended(agent: AgentId) -> tuple[bool, bool]:
            return _flag(agent, "terminated", terminations), _flag(agent, "truncated", truncations)

        live = [agent for agent in self._known(self.env.agents) if not any(ended(agent))]
        for agent in live:
            if agent in self._gone:
                raise Misfit(
                    f"agent {agent!r} came back after it had left. In an episode nobody returns under the same name: "
                    "give what comes another one, and all of them in possible_agents"
                )
        for agent in acted:
            self.rewards[self._places[agent].index] = _reward(agent, rewards)
        self._gone |= set(acted) - set(live)
        self._live = live
        if not live:
            cut = [agent for agent in acted if ended(agent) == (False, True)]
            final = [agent for agent in acted if agent in cut or (self._fixed and agent in observations)]
            return self._look(final, observations), 0.0, not cut, bool(cut), {}
        self._check_fixed()
        self._allow(observations, infos)
        return self._look(self._live, observations), 0.0, False, False, {}

    def render(self) -> Any:
        """A picture."""
        return self.env.render()

    def close(self) -> None:
        """Free everything."""
        self.env.close()

    def _known(self, agents: Iterable[AgentId]) -> list[AgentId]:
        live = list(agents)
        for agent in live:
            if agent not in self._places:
                raise Misfit(f"agent {agent!r} takes part, and possible_agents has no such agent")
        return live

    def _check_fixed(self) -> None:
        if self._fixed and len(self._live) < len(self._places):
            missing = sorted(str(agent) for agent in self._places if agent not in self._live)
            raise Misfit(
                f"agents {', '.join(missing)} take no part while others do, and the option changing=false says that "
                "all agents always do. Leave the option out"
            )

    def _look(self, agents: Iterable[AgentId], observations: Mapping[AgentId, Any]) -> Any:
        """What these see, in fresh arrays: zeros of the others."""
        seen = allocate(self._spec.observation, ())
        parts = seen if self._spec.teams else {"": seen}
        targets = {team: tree_leaves(part["agents"]) for team, part in parts.items()}
        for agent in agents:
            place = self._places[agent]
            if agent not in observations:
                raise Misfit(f"agent {agent!r} takes part, and there is no observation for it")
            try:
                place.writer.write_row(targets[place.team], place.row, place.spaces.own(observations[agent]))
            except Misfit as misfit:
                raise Misfit(f"agent {agent!r}: {misfit}") from None
            if not self._fixed:
                parts[place.team]["present"][place.row] = 1
        self._check_finite(targets)
        if self._state is not None:
            self._write_state([part["state"] for part in parts.values()])
        return seen

    def _check_finite(self, targets: Mapping[str, list[NDArray]]) -> None:
        for team, leaves in targets.items():
            for leaf in leaves:
                if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                    at = tuple(int(k) for k in np.argwhere(~np.isfinite(leaf))[0])
                    who = next(a for a, p in self._places.items() if (p.team, p.row) == (team, at[0]))
                    raise Misfit(f"agent {who!r}: observation{list(at[1:]) or ''} is {leaf[at]}")

    def _write_state(self, parts: list[Any]) -> None:
        assert self._state is not None
        state = self.env.state()
        for part in parts:
            try:
                self._state.write_row([leaf[None] for leaf in tree_leaves(part)], 0, state)
            except Misfit as misfit:
                raise Misfit(f"state(): {str(misfit).replace('observation', 'state', 1)}") from None

    def _allow(self, observations: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """Put the masks together: everything is allowed to agents that take no part, to those that wait one choice."""
        if not self._masked:
            return
        mask, waits = np.ones_like(self.mask), self._takes_turns
        for agent in self._live:
            place = self._places[agent]
            if not place.spec.action_mask:
                continue
            if waits and agent != self.env.mover:
                mask[place.mask] = False
                mask[place.mask][0 if place.starts is None else place.starts] = True
                continue
            where: Any = observations.get(agent) if place.spaces.beside else infos.get(agent)
            given = where.get(KEY) if isinstance(where, Mapping) else None
            if given is None and waits and not place.spaces.beside:
                continue
            try:
                mask[place.mask] = mask_row({KEY: given}, place.spec.mask_size, place.starts)
            except Misfit as misfit:
                said = str(misfit).replace("info", "observation" if place.spaces.beside else "info", 1)
                raise Misfit(f"agent {agent!r}: {said}") from None
        self.mask = mask


def places(name: str, env: Any, spec: EnvSpec) -> dict[AgentId, Place]:
    """Every agent's place, by the agent as the environment knows it; in the order of the groups."""
    by_name = {str(agent): agent for agent in env.possible_agents}
    found: dict[AgentId, Place] = {}
    actions = masks = 0
    for team, group in groups_of(spec).items():
        one = group.agent
        assert one is not None
        for row, known in enumerate(group.agents):
            agent = by_name[known]
            spaces = spaces_of(name, env, agent)
            size = int(np.prod(one.native_action.shape, dtype=np.int64))
            found[agent] = Place(
                team=team,
                row=row,
                index=len(found),
                action=slice(actions, actions + size),
                mask=slice(masks, masks + one.mask_size),
                spaces=spaces,
                spec=one,
                writer=ObservationWriter(spaces.observation),
                starts=dimension_starts(one.native_action),
            )
            actions, masks = actions + size, masks + one.mask_size
    return found


def gym_space(tree: SpaceTree) -> gym.Space[Any]:
    """A space tree of ours as Gymnasium has it."""
    match tree:
        case tuple():
            return gym.spaces.Tuple([gym_space(part) for part in tree])
        case Box(shape=shape, dtype=dtype, low=low, high=high):
            low, high = (np.broadcast_to(np.asarray(bound).astype(dtype), shape) for bound in (low, high))
            kind: Any = np.dtype(dtype).type
            return gym.spaces.Box(low, high, shape, kind)
        case Discrete(n=n):
            return gym.spaces.Discrete(n)
        case MultiDiscrete(nvec=nvec):
            return gym.spaces.MultiDiscrete(list(nvec))
        case MultiBinary(n=n):
            return gym.spaces.MultiBinary(n)
    return gym.spaces.Dict({key: gym_space(part) for key, part in tree.items()})


def _reward(agent: AgentId, rewards: Mapping[AgentId, Any]) -> float:
    reward = rewards.get(agent, 0.0)
    if type(reward) is float and -LARGEST <= reward <= LARGEST:  # as a rule; the rest takes microseconds
        return reward
    try:
        number = float(reward) if np.shape(reward) == () else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not -LARGEST <= number <= LARGEST:
        raise Misfit(f"agent {agent!r}: the reward is {shorten(reward)}, expected a finite number")
    return number


def _flag(agent: AgentId, what: str, flags: Mapping[AgentId, Any]) -> bool:
    flag = flags.get(agent, False)
    if type(flag) is not bool and not is_flag(flag):
        raise Misfit(f"agent {agent!r}: {what} is {shorten(flag)}, expected True or False")
    return bool(flag)


def _words(gave: Any) -> str:
    if not isinstance(gave, tuple):
        return type(gave).__name__
    return f"{len(gave)} values ({', '.join(type(part).__name__ for part in gave)})"
