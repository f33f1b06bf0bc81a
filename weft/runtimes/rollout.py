"""Acting in JAX environments, compiled: ``T`` steps of ``B`` environments as one scan, ending in an unroll.

Everything is a pure function of a LoopState; the engines decide where and how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft.core.keys import env_keys, fragment_key, step_keys
from weft.core.types import Array, Timestep, Tree, Unroll
from weft.envs.autoreset import advance, begin
from weft.envs.protocol import JaxEnv
from weft.graph.algorithm import Algorithm
from weft.graph.loops import policy_view
from weft.runtimes.hoist import hoist


class LoopState(NamedTuple):
    """Where ``B`` environments and their act stand between two unrolls."""

    env: Tree  # [B, ...]
    timestep: Timestep  # [B, ...] what act sees next
    carry: Tree  # [B, ...]
    episode_return: Array  # [B] so far in the running episode
    episode_length: Array  # [B] int32, likewise
    env_keys: Array  # [B] one for each environment, by its index
    act_keys: Array  # [B]
    step: Array  # [] int32: steps that each environment has made


class EpisodeSlices(NamedTuple):
    """The episodes that ended at each step of an unroll, added up over the environments."""

    count: Array  # [T] int32
    return_sum: Array  # [T] float32
    length_sum: Array  # [T] int32


class Rollout(NamedTuple):
    """``init(seed, indices) -> LoopState`` and ``unroll(params, state) -> (state, Unroll, EpisodeSlices)``."""

    init: Callable[[Array, Array], LoopState]
    unroll: Callable[[Tree, LoopState], tuple[LoopState, Unroll, EpisodeSlices]]


class _Recorded(NamedTuple):
    """One step, as the scan stacks it; the first group goes into the unroll as it is."""

    timestep: Timestep  # what act saw
    action: Tree
    extras: dict[str, Tree]
    next: Timestep  # what came of it, with the final observation but without the next one
    carry: Tree  # act's carry after the step
    episode_return: Array
    episode_length: Array


def make_rollout(algorithm: Algorithm, env: JaxEnv) -> Rollout:
    """The rollout of a bound algorithm in an environment."""
    length = algorithm.unroll

    def init(seed: Array, indices: Array) -> LoopState:
        keys = env_keys(fragment_key(seed, "env"), indices)
        state, timestep = jax.vmap(lambda key: begin(env, key))(step_keys(keys, jnp.int32(0), 1)[0])
        batch = indices.shape[0]
        start = algorithm.initial_carry()
        carry = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (batch, *jnp.shape(x))), start)
        zeros = jnp.zeros(batch)
        act_keys = env_keys(fragment_key(seed, "act"), indices)
        view = policy_view(timestep)
        return LoopState(state, view, carry, zeros, zeros.astype(jnp.int32), keys, act_keys, jnp.int32(0))

    one = jax.eval_shape(init, jnp.int32(0), jnp.zeros(1, jnp.int32))
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), one._replace(step=None))
    params_schema = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
    act = hoist(algorithm.act, params_schema, one.carry, one.timestep)
    acted = jax.eval_shape(algorithm.act, params_schema, one.carry, one.timestep, one.act_keys)
    advance_env = hoist(lambda state, action, key: advance(env, state, action, key), one.env, acted.action)

    def unroll(params: Tree, state: LoopState) -> tuple[LoopState, Unroll, EpisodeSlices]:
        # Step 0 of an environment's keys went to its first reset, so its steps count from 1.
        act_noise = jax.vmap(jax.vmap(act.early))(step_keys(state.act_keys, state.step + 1, length))
        env_noise = jax.vmap(jax.vmap(advance_env.early))(step_keys(state.env_keys, state.step + 1, length))

        def step(state: LoopState, noise: tuple[Tree, Tree]) -> tuple[LoopState, _Recorded]:
            acted = jax.vmap(act.rest, (0, None, 0, 0))(noise[0], params, state.carry, state.timestep)
            env_state, following = jax.vmap(advance_env.rest)(noise[1], state.env, acted.action)
            episode_return = state.episode_return + following.reward
            episode_length = state.episode_length + 1
            recorded = _Recorded(
                timestep=state.timestep,
                action=acted.action,
                extras=acted.extras,
                next=following._replace(observation=None, action_mask=None),
                carry=acted.carry,
                episode_return=episode_return,
                episode_length=episode_length,
            )
            new = state._replace(
                env=env_state,
                timestep=policy_view(following),
                carry=acted.carry,
                episode_return=jnp.where(following.first, 0.0, episode_return),
                episode_length=jnp.where(following.first, 0, episode_length),
            )
            return new, recorded

        end, recorded = jax.lax.scan(step, state, (act_noise, env_noise))
        following = recorded.next
        last = jax.vmap(algorithm.bootstrap, (None, 0, 0))(params, end.carry, end.timestep.observation)
        cut = bootstrap_where(algorithm, params, recorded.carry, following.final_observation, following.truncated)
        bootstrap = cut.at[-1].set(jnp.where(following.truncated[-1], cut[-1], last))
        block = Unroll(
            observation=recorded.timestep.observation,
            first=recorded.timestep.first,
            action=recorded.action,
            extras=recorded.extras,
            reward=following.reward,
            terminated=following.terminated,
            truncated=following.truncated,
            bootstrap=bootstrap,
            carry=state.carry,
            last_observation=end.timestep.observation,
            last_first=end.timestep.first,
            action_mask=recorded.timestep.action_mask,
        )
        ended = following.first
        slices = EpisodeSlices(
            count=ended.sum(-1, dtype=jnp.int32),
            return_sum=jnp.where(ended, recorded.episode_return, 0.0).sum(-1),
            length_sum=jnp.where(ended, recorded.episode_length, 0).sum(-1, dtype=jnp.int32),
        )
        return end._replace(step=state.step + length), block, slices

    return Rollout(init, unroll)


def bootstrap_where(algorithm: Algorithm, params: Tree, carry: Tree, final: Tree, truncated: Array) -> jax.Array:
    """``[T, B]`` values of the final observations where ``truncated``, 0 elsewhere.

    ``carry`` and ``final`` are ``[T, B, ...]``. Truncation is rare, so the few observations are gathered and looked at together; if there are more
    than an eighth of all, every one is looked at.
    """
    shape = truncated.shape
    flat = truncated.reshape(-1)
    size = flat.shape[0]
    few = min(size, max(shape[-1], size // 8))
    carry, final = jax.tree.map(lambda x: x.reshape((size, *x.shape[2:])), (carry, final))
    value = jax.vmap(algorithm.bootstrap, (None, 0, 0))

    def gathered() -> jax.Array:
        at = jnp.nonzero(flat, size=few, fill_value=size)[0]
        chosen = jax.tree.map(lambda x: x.at[at].get(mode="clip"), (carry, final))
        return jnp.zeros(size).at[at].set(value(params, *chosen), mode="drop")

    def everywhere() -> jax.Array:
        return jnp.where(flat, value(params, carry, final), 0.0)

    values = everywhere() if few == size else jax.lax.cond(flat.sum() <= few, gathered, everywhere)
    return values.reshape(shape)
