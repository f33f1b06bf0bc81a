"""A JAX environment made continuous: where an episode ends, the next begins in the same step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weft.core.specs import EnvSpec
from weft.core.types import Timestep, Tree
from weft.envs.protocol import JaxEnv


def begin(env: JaxEnv, key: jax.Array) -> tuple[Tree, Timestep]:
    """The first timestep of one environment: (state, timestep), no reward; ``truncated``, and so ``first``, is set."""
    state, observation = env.reset(key)
    no, yes = jnp.zeros((), jnp.bool_), jnp.ones((), jnp.bool_)

    def nothing(spec: EnvSpec) -> jax.Array:
        return jnp.zeros(spec.reward_shape, jnp.float32)

    reward: Any = {team: nothing(spec) for team, spec in env.spec.teams.items()} or nothing(env.spec)
    return state, Timestep(observation, reward, no, yes, observation, _mask(env, state))


def advance(env: JaxEnv, state: Tree, action: jax.Array, key: jax.Array) -> tuple[Tree, Timestep]:
    """Step one environment by a policy's action, and reset it where the episode ended: (state, timestep)."""
    step_key, reset_key = jax.random.split(key)
    stepped, transition = env.step(state, env.spec.to_native(action, jnp), step_key)
    after = getattr(env, "reset_after", None)  # an environment whose options are part of its state
    fresh, first_observation = env.reset(reset_key) if after is None else after(reset_key, state)
    ended = transition.terminated | transition.truncated

    def choose(new: Tree, old: Tree) -> Tree:
        return jax.tree.map(lambda n, o: jnp.where(ended, n, o), new, old)

    state = choose(fresh, stepped)
    return state, Timestep(
        observation=choose(first_observation, transition.observation),
        reward=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), transition.reward),
        terminated=transition.terminated,
        truncated=transition.truncated,
        final_observation=transition.observation,
        action_mask=_mask(env, state),
    )


def _mask(env: JaxEnv, state: Tree) -> jax.Array | None:
    if not env.spec.action_mask:
        return None
    mask: jax.Array = env.action_mask(state)  # type: ignore[attr-defined]
    return mask
