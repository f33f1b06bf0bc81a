"""Evaluation: a trained policy plays whole episodes, and nothing is learned."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource, HostFactory
from weft.runtimes.policies.policy import Policy
from weft.runtimes.policies.teams import TeamPolicies, as_players

EVALUATION_SEED = 1_000_003
"""Added to a run's seed, so that evaluation meets other episodes than training did."""


class Evaluation(NamedTuple):
    """Returns and lengths of ``episodes`` episodes."""

    episodes: int
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    length_mean: float
    returns: list[float]


def evaluate_policy(
    policy: Policy | TeamPolicies, source: EnvSource, *, episodes: int, seed: int, team: str = ""
) -> Evaluation:
    """Play ``episodes`` episodes, as many environments at a time as is sensible; blocks.

    Where all teams of an environment play, ``team`` is the one whose returns are counted. Of several agents, their mean
    is.

    Every environment plays the same number, so that short episodes are not counted more often than long ones.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    policy, only = as_players(policy, source.spec)
    team = team or only
    envs = min(episodes, 16)
    each = math.ceil(episodes / envs)
    env = host_factory(source)(envs, seed + EVALUATION_SEED)
    returns: list[list[float]] = [[] for _ in range(envs)]
    lengths: list[list[int]] = [[] for _ in range(envs)]
    total, steps = np.zeros(envs), np.zeros(envs, np.int64)
    try:
        timestep = timestep_buffers(source.spec, (envs,))
        env.reset(timestep)
        policy.reset()
        while min(map(len, returns)) < each:
            env.step(policy.act(timestep), timestep)
            counted = np.ones(envs, np.bool_) if timestep.valid is None else np.asarray(timestep.valid)
            reward = np.asarray(timestep.reward[team] if team else timestep.reward)
            total += np.where(counted, reward.mean(-1) if reward.ndim > 1 else reward, 0)
            steps += counted
            for row in np.nonzero(np.asarray(timestep.first) & counted)[0]:
                if len(returns[row]) < each:
                    returns[row].append(float(total[row]))
                    lengths[row].append(int(steps[row]))
                total[row], steps[row] = 0, 0
            total[~counted], steps[~counted] = 0, 0  # an episode that was cut off by a failure counts for nothing
    finally:
        env.close()
    # In rounds, so that asking for fewer than were played leaves out whole last rounds and not whole environments.
    flat = [r for round_ in zip(*returns, strict=True) for r in round_][:episodes]
    spans = [n for round_ in zip(*lengths, strict=True) for n in round_][:episodes]
    array = np.array(flat)
    return Evaluation(
        episodes=len(flat),
        return_mean=float(array.mean()),
        return_std=float(array.std()),
        return_min=float(array.min()),
        return_max=float(array.max()),
        length_mean=float(np.mean(spans)),
        returns=flat,
    )


def record_episode(
    policy: Policy | TeamPolicies, source: EnvSource, *, seed: int, max_frames: int = 2000
) -> list[np.ndarray[Any, Any]]:
    """The frames of one episode, uint8 ``[H, W, 3]`` each."""
    policy, _ = as_players(policy, source.spec)
    env = host_factory(source)(1, seed + EVALUATION_SEED, render=True)
    frames: list[np.ndarray[Any, Any]] = []
    try:
        timestep = timestep_buffers(source.spec, (1,))
        env.reset(timestep)
        policy.reset()
        while len(frames) < max_frames:
            frames.append(np.array(env.render()))
            env.step(policy.act(timestep), timestep)
            if bool(np.asarray(timestep.first)[0]):
                break
    finally:
        env.close()
    return frames


def host_factory(source: EnvSource) -> HostFactory:
    """An environment as a host environment, whichever kind it is."""
    if source.host is not None:
        return source.host
    assert source.pure is not None
    return JaxOnHostFactory(source.pure)
