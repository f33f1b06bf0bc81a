"""Arrays for the records of an environment, made once and written many times. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.specs import EnvSpec, Shape, allocate
from weft.core.types import Timestep, Tree


def timestep_buffers(spec: EnvSpec, leading: Shape) -> Timestep:
    """Zeroed NumPy buffers for a host environment's timestep, with ``leading`` axes: ``(B,)`` or ``(T, B)``."""

    def rewards(one: EnvSpec) -> Any:
        return np.zeros((*leading, *one.reward_shape), np.float32)

    def masks(one: EnvSpec) -> Any:
        return np.ones((*leading, one.mask_size), np.bool_) if one.action_mask else None

    several = spec.teams
    reward: Any = {team: rewards(one) for team, one in several.items()} or rewards(spec)
    mask: Any = {team: masks(one) for team, one in several.items()} if several and spec.action_mask else None
    return Timestep(
        observation=allocate(spec.observation, leading),
        reward=reward,
        terminated=np.zeros(leading, np.bool_),
        truncated=np.zeros(leading, np.bool_),
        final_observation=allocate(spec.observation, leading),
        action_mask=mask if several else masks(spec),
        valid=np.ones(leading, np.bool_) if spec.marks_valid else None,
    )


def of_team(timestep: Timestep, team: str) -> Timestep:
    """What one team sees of a timestep of several: views. ``team`` empty: the whole, where there are no teams."""
    if not team:
        return timestep

    def own(tree: Tree) -> Tree:
        return None if tree is None else tree[team]

    return timestep._replace(
        observation=own(timestep.observation),
        reward=timestep.reward[team],
        final_observation=own(timestep.final_observation),
        action_mask=own(timestep.action_mask),
    )
