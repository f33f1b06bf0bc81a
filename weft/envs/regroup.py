"""The agents of an environment, grouped by the policies that act for them.

An environment has its agents in groups of its own (teams). Policies are given by patterns of names, and may take a part
of a group, a whole one, or several whose agents see and do alike. What a policy sees then is a team of that name, with
its agents in the environment's order. Nothing else of the environment changes; NumPy and JAX alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError
from weft.core.specs import EnvSpec
from weft.core.trees import tree_leaves, tree_map
from weft.core.types import Timestep, Tree
from weft.envs.members import Member, assigned, members_of
from weft.envs.protocol import EnvSource, HostEnv, HostFactory, JaxEnv, Snapshot, Transition


def regrouped(source: EnvSource, patterns: Iterable[str]) -> EnvSource:
    """The environment with a team for each of the policies; itself, where it has just those."""
    groups = assigned(source.spec, patterns)
    own = source.spec.teams
    if {name: [m.name for m in found] for name, found in groups.items()} == {
        team: [m.name for m in members_of(source.spec) if m.team == team] for team in own
    }:
        return source
    grouping = Grouping(source.spec, tuple((name, tuple(found)) for name, found in groups.items()))
    if source.pure is not None:
        return replace(source, spec=grouping.spec, pure=RegroupedJax(source.pure, grouping))
    assert source.host is not None
    return replace(source, spec=grouping.spec, host=RegroupedFactory(source.host, grouping), single=None)


@dataclass(frozen=True)
class Grouping:
    """An environment's own spec, and who is in which new team; moves arrays from one to the other."""

    own: EnvSpec
    groups: tuple[tuple[str, tuple[Member, ...]], ...]

    @cached_property
    def spec(self) -> EnvSpec:
        """With the new teams."""
        teams = {name: self._team(members) for name, members in self.groups}
        kept = {f: getattr(self.own, f) for f in ("max_episode_steps", "frame_skip", "may_fail", "next_step_reset")}
        masks = any(team.action_mask for team in teams.values())
        return EnvSpec.of_teams(self.own.name, teams, pure=self.own.pure, action_mask=masks, **kept)

    def _team(self, members: Sequence[Member]) -> EnvSpec:
        if len(members) == 1 and members[0].row is None:
            return members[0].spec
        origins = [self._group(m.team) for m in members]
        seen: list[Any] = [origin.observation if origin.agents else {} for origin in origins]
        states = [s["state"] for s in seen if "state" in s]
        return EnvSpec.of_agents(
            self.own.name,
            members[0].spec,
            [m.name for m in members],
            state=states[0] if len(states) == len(seen) and all(s == states[0] for s in states) else None,
            changing=any("present" in s for s in seen),
            max_episode_steps=self.own.max_episode_steps,
            may_fail=self.own.may_fail,
            next_step_reset=self.own.next_step_reset,
        )

    def _group(self, team: str) -> EnvSpec:
        return self.own.teams[team] if team else self.own

    def observations(self, tree: Tree, xp: Any, axis: int = 0) -> dict[str, Tree]:
        """What the new teams see, of what the environment's own do; ``axis`` is that of the agents."""
        found: dict[str, Tree] = {}
        for name, members in self.groups:
            spec = self.spec.teams[name]
            sights = [tree[m.team] if m.team else tree for m in members]
            if not spec.agents:
                found[name] = sights[0]
                continue
            pairs = list(zip(sights, members, strict=True))
            rows = [s if m.row is None else _row(s["agents"], m.row, axis) for s, m in pairs]
            seen: dict[str, Tree] = {"agents": tree_map(lambda *x: xp.stack(x, axis), *rows)}
            wanted: Any = spec.observation
            if "state" in wanted:
                seen["state"] = sights[0]["state"]
            if "present" in wanted:
                lead = tree_leaves(rows[0])[0].shape[:axis]
                here = [
                    s["present"][..., m.row] if m.row is not None and "present" in s else xp.ones(lead, np.int8)
                    for s, m in pairs
                ]
                seen["present"] = xp.stack(here, axis)
            found[name] = seen
        return found

    def rewards(self, tree: Tree, xp: Any, axis: int = 0) -> dict[str, Any]:
        """What the new teams get."""
        found: dict[str, Any] = {}
        for name, members in self.groups:
            own = [tree[m.team] if m.team else tree for m in members]
            rows = [x if m.row is None else x[..., m.row] for x, m in zip(own, members, strict=True)]
            found[name] = xp.stack(rows, axis) if self.spec.teams[name].agents else rows[0]
        return found

    def masks(self, tree: Tree, xp: Any) -> dict[str, Any] | None:
        """The actions allowed to the new teams; None where nothing is masked."""
        if not self.spec.action_mask:
            return None
        found: dict[str, Any] = {}
        for name, members in self.groups:
            if not self.spec.teams[name].action_mask:
                found[name] = None
                continue
            parts = []
            for m in members:
                own, size = tree[m.team] if m.team else tree, m.spec.mask_size
                parts.append(own if m.row is None else own[..., m.row * size : (m.row + 1) * size])
            found[name] = xp.concatenate(parts, -1)
        return found

    def actions(self, chosen: Mapping[str, Any], xp: Any, axis: int = 0) -> Any:
        """The environment's own actions, of those of the new teams."""
        rows: dict[tuple[str, int | None], Any] = {}
        for name, members in self.groups:
            action = chosen[name]
            if not self.spec.teams[name].agents:
                rows[members[0].team, None] = action
                continue
            shape = members[0].spec.action.shape
            each = action.reshape((*action.shape[:axis], len(members), *shape))
            for k, m in enumerate(members):
                rows[m.team, m.row] = each[(slice(None),) * axis + (k,)]
        own: dict[str, Any] = {}
        for team in self.own.teams or {"": self.own}:
            group = self._group(team)
            if not group.agents:
                own[team] = rows[team, None]
                continue
            together = xp.stack([rows[team, k] for k in range(len(group.agents))], axis)
            own[team] = together.reshape((*together.shape[:axis], *group.action.shape))
        return own if self.own.teams else own[""]


def _row(tree: Tree, row: int, axis: int) -> Tree:
    """What one agent has of a group's, whose axis of agents is ``axis``."""
    return tree_map(lambda x: x[(slice(None),) * axis + (row,)], tree)


@dataclass(frozen=True)
class RegroupedJax:
    """A JAX environment with other teams."""

    env: JaxEnv
    grouping: Grouping

    @property
    def spec(self) -> EnvSpec:
        """With the new teams."""
        return self.grouping.spec

    def reset(self, key: Any) -> tuple[Tree, Tree]:
        """A fresh episode."""
        import jax.numpy as jnp

        state, observation = self.env.reset(key)
        return state, self.grouping.observations(observation, jnp)

    def step(self, state: Tree, action: Any, key: Any) -> tuple[Tree, Transition]:
        """One step; actions by new team."""
        import jax.numpy as jnp

        state, went = self.env.step(state, self.grouping.actions(action, jnp), key)
        seen, reward = self.grouping.observations(went.observation, jnp), self.grouping.rewards(went.reward, jnp)
        return state, went._replace(observation=seen, reward=reward)

    def action_mask(self, state: Tree) -> Any:
        """The actions allowed, by new team."""
        import jax.numpy as jnp

        return self.grouping.masks(self.env.action_mask(state), jnp)  # type: ignore[attr-defined]

    def render(self, state: Tree) -> Any:
        """As the environment draws itself."""
        draw = getattr(self.env, "render", None)
        if draw is None:
            raise ConfigError(
                f"environment {self.spec.name!r} has no render(state), so that no video can be made of it"
            )
        return draw(state)


class RegroupedHost:
    """A batch of host environments with other teams: what the batch writes is copied, team by team."""

    def __init__(self, env: HostEnv, grouping: Grouping) -> None:
        self._env, self._grouping = env, grouping
        self._own = timestep_buffers(env.spec, (env.num_envs,))
        self.spec, self.num_envs = grouping.spec, env.num_envs

    @property
    def troubles(self) -> Any:
        """What the batch met."""
        return getattr(self._env, "troubles", None)

    def reset(self, out: Timestep) -> None:
        """Start every environment; blocks."""
        self._env.reset(self._own)
        self._copy(out)

    def step(self, action: Any, out: Timestep) -> None:
        """Step every environment by the teams' actions; blocks."""
        self._env.step(self._grouping.actions(action, np, 1), self._own)
        self._copy(out)

    def _copy(self, out: Timestep) -> None:
        own, grouping = self._own, self._grouping
        for name in ("observation", "final_observation"):
            if getattr(out, name) is not None:
                tree_map(np.copyto, getattr(out, name), grouping.observations(getattr(own, name), np, 1))
        tree_map(np.copyto, out.reward, grouping.rewards(own.reward, np, 1))
        np.copyto(np.asarray(out.terminated), own.terminated)
        np.copyto(np.asarray(out.truncated), own.truncated)
        if out.valid is not None and own.valid is not None:
            np.copyto(np.asarray(out.valid), own.valid)
        if out.action_mask is not None:
            tree_map(np.copyto, out.action_mask, grouping.masks(own.action_mask, np))

    def render(self) -> Any:
        """The first environment as an image."""
        return self._env.render()

    def snapshot(self) -> Snapshot:
        """What the batch needs to be brought back."""
        return self._env.snapshot()

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """In place of ``reset``; the rows that could not be brought back exactly."""
        lost = self._env.restore(snapshot, self._own)
        self._copy(out)
        return lost

    def close(self) -> None:
        """Free everything."""
        self._env.close()


@dataclass(frozen=True)
class RegroupedFactory:
    """Makes batches of host environments with other teams."""

    make: HostFactory
    grouping: Grouping

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> RegroupedHost:
        """Environments ``first_index`` to ``first_index + num_envs - 1`` of a run with ``seed``."""
        return RegroupedHost(self.make(num_envs, seed, first_index, render), self.grouping)
