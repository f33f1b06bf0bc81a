"""A batch of environments with agents: the vectoriser's, around environments that are each a whole group or several.

The vectoriser steps, guards, resets and replays them. What it has no place for is added here: rewards ``[B, A]``,
masks, and all of that by team; and actions by team as one flat vector for each environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from weft.core.errors import ConfigError, EnvironmentFault
from weft.core.specs import Box, EnvSpec
from weft.core.types import Timestep
from weft.envs.agents import groups_of
from weft.envs.guards import UNGUARDED, Guards, Troubles
from weft.envs.joint import JointEnv, gym_space
from weft.envs.protocol import HostEnv, Snapshot
from weft.envs.spaces import observation_spec
from weft.envs.vectoriser import Vectoriser

NDArray: TypeAlias = np.ndarray[Any, Any]
MakeAgents: TypeAlias = Callable[[bool], Any]
"""Makes one parallel PettingZoo environment, or a ``TurnGame``; the argument says whether it will be rendered."""


@dataclass(frozen=True)
class AgentsFactory:
    """A ``HostFactory`` of environments with agents: ``make`` is called once for every environment."""

    name: str
    spec: EnvSpec
    make: MakeAgents
    guards: Guards = UNGUARDED

    def __call__(self, num_envs: int, seed: int, first_index: int = 0, render: bool = False) -> HostEnv:
        """Make ``num_envs`` environments, not yet reset."""
        return cast(HostEnv, AgentsBatch(self.spec, self.make, num_envs, seed, first_index, render, self.guards))

    def guarded(self, guards: Guards) -> AgentsFactory:
        """The same with other guards. Where environments may fail and go on, the spec and those of the teams say so."""
        may_fail = guards.errors == "reset"
        teams = {team: replace(one, may_fail=may_fail) for team, one in self.spec.teams.items()}
        return replace(self, guards=guards, spec=replace(self.spec, may_fail=may_fail, teams=teams))


class AgentsBatch:
    """A ``HostEnv`` of ``num_envs`` environments with agents; ``envs.protocol`` has what each method promises.

    With several teams, actions are a dict by team, and so are rewards and masks in ``out``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        make: MakeAgents,
        num_envs: int,
        seed: int,
        first_index: int = 0,
        render: bool = False,
        guards: Guards = UNGUARDED,
    ) -> None:
        self._spec, self._num_envs = spec, num_envs

        def made(render: bool) -> JointEnv:
            env = make(render)
            try:
                return JointEnv(spec.name, env, spec)
            except BaseException:
                env.close()
                raise

        groups = groups_of(spec)
        size = sum(int(np.prod(group.native_action.shape)) for group in groups.values())
        flat = EnvSpec(
            spec.name,
            observation_spec(gym_space(spec.observation), spec.name),
            Box((size,)),
            may_fail=spec.may_fail,
        )
        self._batch = Vectoriser(flat, made, num_envs, seed, first_index, render, guards)
        self._envs = self._joint()
        cores = {id(env.env.unwrapped) for env in self._envs}
        if len(cores) < num_envs:
            self.close()
            raise EnvironmentFault(
                f"environment {spec.name!r}: one of a batch is the same object as an earlier one. The function that "
                "makes environments must make a new one each time that it is called."
            )
        agents = np.cumsum([0, *(len(group.agents) for group in groups.values())])
        choices = np.cumsum([0, *(group.mask_size for group in groups.values())])
        self._agents = {team: slice(*agents[k : k + 2]) for k, team in enumerate(groups)}
        self._choices = {team: slice(*choices[k : k + 2]) for k, team in enumerate(groups)}
        self._rewards = np.zeros((num_envs, agents[-1]), np.float32)
        self._masks = np.ones((num_envs, choices[-1]), np.bool_)
        self._nothing = np.zeros(num_envs, np.float32)  # where the vectoriser writes its reward, which is none

    @property
    def spec(self) -> EnvSpec:
        """The spaces."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """How many environments there are, B."""
        return self._num_envs

    @property
    def troubles(self) -> Troubles:
        """What went wrong and did not end the run, until it is taken."""
        return self._batch.troubles

    def reset(self, out: Timestep) -> None:
        """Start every environment from its own seed; blocks."""
        self._batch.reset(self._under(out))
        self._rewards[:] = 0.0
        self._tell(out)

    def step(self, action: Any, out: Timestep) -> None:
        """Step every environment by ``action``, ``[B, ...]`` or a dict of such by team; blocks."""
        self._batch.step(self._flat(action), self._under(out))
        # By those that were stepped: one that failed in its reset may be made anew by now.
        for row, env in enumerate(self._envs):
            self._rewards[row] = env.rewards
        if out.valid is not None:
            self._rewards[~np.asarray(out.valid)] = 0.0
        self._tell(out)

    def render(self) -> NDArray:
        """The first environment as uint8 [H, W, 3]; only where it was made with ``render=True``."""
        return self._batch.render()

    def snapshot(self) -> Snapshot:
        """The vectoriser's, and the last rewards; JSON-serialisable.

        Exact for environments whose episodes follow from the seed of their reset and the actions.
        """
        return {**self._batch.snapshot(), "rewards": self._rewards.tolist()}

    def restore(self, snapshot: Snapshot, out: Timestep) -> list[int]:
        """In place of ``reset``: replay every environment's current episode; returns the rows that begin anew."""
        inexact = self._batch.restore(snapshot, self._under(out))
        rewards = np.asarray(snapshot.get("rewards", self._rewards * 0.0), np.float32)
        if rewards.shape != self._rewards.shape:
            raise ConfigError(
                f"environment {self._spec.name!r}: a snapshot with rewards {list(rewards.shape)} cannot be restored "
                f"into {self._num_envs} environments with {self._rewards.shape[1]} agents"
            )
        self._rewards[:] = rewards
        self._rewards[inexact] = 0.0
        self._tell(out)
        return inexact

    def close(self) -> None:
        """Close every environment; may be called twice."""
        self._batch.close()

    def _joint(self) -> list[JointEnv]:
        return [cast(JointEnv, env) for env in self._batch.envs]

    def _under(self, out: Timestep) -> Timestep:
        """What the vectoriser may write."""
        return out._replace(reward=self._nothing, action_mask=None)

    def _flat(self, action: Any) -> NDArray:
        """All agents' native actions one after another, ``[B, size]`` float32."""
        parts = []
        for team, group in groups_of(self._spec).items():
            own = np.asarray(action[team] if team else action)
            expected = (self._num_envs, *group.action.shape)
            if own.shape != expected:
                of = f" of team {team!r}" if team else ""
                raise ConfigError(
                    f"environment {self._spec.name!r}: actions{of} have shape {list(own.shape)}, expected "
                    f"{list(expected)}"
                )
            parts.append(np.asarray(group.to_native(own)).reshape(self._num_envs, -1).astype(np.float32))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _tell(self, out: Timestep) -> None:
        """Write rewards and masks, by team where there are teams."""
        self._envs = self._joint()
        masked = out.action_mask is not None
        if masked:
            for row, env in enumerate(self._envs):
                self._masks[row] = env.mask
        reward: Any = out.reward
        masks: Any = out.action_mask
        for team in self._agents:
            place = reward[team] if team else reward
            place[...] = self._rewards[:, self._agents[team]]
            own = masks[team] if masked and team else masks
            if own is not None:
                own[...] = self._masks[:, self._choices[team]]
