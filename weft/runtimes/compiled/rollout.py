"""Acting in JAX environments, compiled: ``T`` steps of ``B`` environments as one scan, ending in an unroll.

Everything is a pure function of a LoopState; the engines decide where and how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft.core.errors import EnvironmentFault
from weft.core.keys import env_keys, fragment_key, step_keys
from weft.core.specs import allocate
from weft.core.types import Acted, Array, Timestep, Tree, Unroll
from weft.envs.autoreset import advance, begin
from weft.envs.protocol import JaxEnv
from weft.graph.algorithm import Algorithm
from weft.graph.graph import schema_difference
from weft.graph.loops import as_schema, policy_view
from weft.runtimes.compiled.episodes import EpisodeSlices, Running, slices_of
from weft.runtimes.compiled.hoist import hoist
from weft.runtimes.compiled.packing import scan_packed


class LoopState(NamedTuple):
    """Where ``B`` environments and their act stand between two unrolls."""

    env: Tree  # [B, ...]
    timestep: Timestep  # [B, ...] what act sees next
    carry: Tree  # [B, ...]
    running: Running  # [B] the episodes that are going on
    env_keys: Array  # [B] one for each environment, by its index
    act_keys: Array  # [B]
    step: Array  # [] int32: steps that each environment has made


class Rollout(NamedTuple):
    """``init(seed, indices) -> LoopState`` and ``unroll(params, state) -> (state, Unroll, EpisodeSlices)``."""

    init: Callable[[Array, Array], LoopState]
    unroll: Callable[[Tree, LoopState], tuple[LoopState, Unroll, EpisodeSlices]]


class _Acting(NamedTuple):
    """What a step hands to the next."""

    env: Tree
    timestep: Timestep
    carry: Tree
    running: Running


class _Recorded(NamedTuple):
    """What a step leaves behind."""

    observation: Tree  # what act saw
    action_mask: Array | None
    acted: Acted  # what it did, with its carry after the step
    reward: Array
    terminated: Array
    truncated: Array
    final_observation: Tree
    running: Running  # with the step's reward, before any restart


def make_rollout(algorithm: Algorithm, env: JaxEnv) -> Rollout:
    """The rollout of a bound algorithm in an environment."""
    length = algorithm.unroll
    _check_spaces(env)

    def init(seed: Array, indices: Array) -> LoopState:
        keys = env_keys(fragment_key(seed, "env"), indices)
        state, timestep = jax.vmap(lambda key: begin(env, key))(step_keys(keys, jnp.int32(0), 1)[0])
        batch = indices.shape[0]
        start = algorithm.initial_carry()
        carry = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (batch, *jnp.shape(x))), start)
        running = Running(jnp.zeros(batch), jnp.zeros(batch, jnp.int32))
        act_keys = env_keys(fragment_key(seed, "act"), indices)
        return LoopState(state, policy_view(timestep), carry, running, keys, act_keys, jnp.int32(0))

    one = jax.eval_shape(init, jnp.int32(0), jnp.zeros(1, jnp.int32))
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), one._replace(step=None))
    params_schema = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
    act = hoist(algorithm.act, params_schema, one.carry, one.timestep)
    acted = jax.eval_shape(algorithm.act, params_schema, one.carry, one.timestep, one.act_keys)
    advance_env = hoist(lambda state, action, key: advance(env, state, action, key), one.env, acted.action)

    # An episode that is cut at its limit has lasted that long: if the limit is beyond T, no environment is cut twice.
    limit = env.spec.max_episode_steps
    at_most_one_cut = limit is not None and limit > length

    def unroll(params: Tree, state: LoopState) -> tuple[LoopState, Unroll, EpisodeSlices]:
        # Step 0 of an environment's keys went to its first reset, so its steps count from 1.
        act_noise = jax.vmap(jax.vmap(act.early))(step_keys(state.act_keys, state.step + 1, length))
        env_noise = jax.vmap(jax.vmap(advance_env.early))(step_keys(state.env_keys, state.step + 1, length))

        def step(now: _Acting, noise: tuple[Tree, Tree]) -> tuple[_Acting, _Recorded]:
            acted = jax.vmap(act.rest, (0, None, 0, 0))(noise[0], params, now.carry, now.timestep)
            env_state, following = jax.vmap(advance_env.rest)(noise[1], now.env, acted.action)
            running = now.running.step(following.reward)
            recorded = _Recorded(
                now.timestep.observation,
                now.timestep.action_mask,
                acted,
                following.reward,
                following.terminated,
                following.truncated,
                following.final_observation,
                running,
            )
            restarted = running.restart(following.first)
            return _Acting(env_state, policy_view(following), acted.carry, restarted), recorded

        start = _Acting(state.env, state.timestep, state.carry, state.running)
        end, recorded = scan_packed(step, start, (act_noise, env_noise), length)
        ended = recorded.terminated | recorded.truncated
        cut = Cut(recorded.truncated, recorded.acted.carry, recorded.final_observation)
        bootstrap = bootstrap_once if at_most_one_cut else bootstrap_all
        unroll = Unroll(
            observation=recorded.observation,
            first=jnp.concatenate([state.timestep.first[None], ended[:-1]]),
            action=recorded.acted.action,
            extras=recorded.acted.extras,
            reward=recorded.reward,
            terminated=recorded.terminated,
            truncated=recorded.truncated,
            bootstrap=bootstrap(algorithm, params, cut, end.carry, end.timestep.observation),
            carry=state.carry,
            last_observation=end.timestep.observation,
            last_first=end.timestep.first,
            action_mask=recorded.action_mask,
        )
        slices = slices_of(recorded.running, ended)
        if at_most_one_cut:
            slices = slices._replace(cut_again=(recorded.truncated.sum(0) > 1).sum(dtype=jnp.int32))
        after = LoopState(
            end.env, end.timestep, end.carry, end.running, state.env_keys, state.act_keys, state.step + length
        )
        return after, unroll, slices

    return Rollout(init, unroll)


def _check_spaces(env: JaxEnv) -> None:
    """Refuse an environment whose reset or step gives something other than its spec says; nothing is computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    want = as_schema(allocate(env.spec.observation, ()))
    policy_action = jax.ShapeDtypeStruct(env.spec.action.shape, env.spec.action.dtype)
    state, observation = jax.eval_shape(env.reset, key)
    native = jax.eval_shape(lambda action: env.spec.to_native(action, jnp), policy_action)
    stepped, transition = jax.eval_shape(env.step, state, native, key)
    scalar, flag = jax.ShapeDtypeStruct((), transition.reward.dtype), jax.ShapeDtypeStruct((), jnp.bool_)
    wrong = {
        "reset's observation disagrees with its spec": schema_difference(want, observation),
        "step's observation disagrees with its spec": schema_difference(want, transition.observation),
        "step's reward must be one number": schema_difference(scalar, transition.reward),
        "step's flags must be booleans": schema_difference((flag, flag), (transition.terminated, transition.truncated)),
        "the state after step disagrees with that after reset": schema_difference(state, stepped),
    }
    if env.spec.action_mask:
        mask = jax.eval_shape(env.action_mask, state)  # type: ignore[attr-defined]
        choices = jax.ShapeDtypeStruct((env.spec.mask_size,), jnp.bool_)
        wrong["its action_mask disagrees with its spec"] = schema_difference(choices, mask)
    for what, difference in wrong.items():
        if difference:
            raise EnvironmentFault(
                f"environment {env.spec.name!r}: {what}: {difference}. Correct its spec, or what it returns."
            )


class Cut(NamedTuple):
    """The episodes that an unroll cut: where, what act remembered then, and what it would have seen next."""

    truncated: Array  # [T, B] bool
    carry: Tree  # [T, B, ...]
    final_observation: Tree  # [T, B, ...]


def bootstrap_once(algorithm: Algorithm, params: Tree, cut: Cut, carry: Tree, following: Tree) -> jax.Array:
    """``[T, B]`` values of what would have followed, where each environment was cut at most once.

    That is where an episode was cut, and at the last step: ``carry`` and ``following`` are what came after it, ``[B,
    ...]``. Both are looked at in one batch. There is no branch on data: a GPU would have to wait for the host.
    """
    length, envs = cut.truncated.shape
    steps, rows = jnp.arange(length)[:, None], jnp.arange(envs)
    when = jnp.where(cut.truncated, steps, -1).max(0)  # [B]: the step at which an environment was cut, or -1
    at_cut = jax.tree.map(lambda x: x[jnp.maximum(when, 0), rows], (cut.carry, cut.final_observation))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), (carry, following), at_cut)
    after, cut_off = jnp.split(jax.vmap(algorithm.bootstrap, (None, 0, 0))(params, *both), 2)
    last = jnp.where(steps == length - 1, after, 0.0)
    return jnp.where(steps == when, cut_off, last)


def bootstrap_all(algorithm: Algorithm, params: Tree, cut: Cut, carry: Tree, following: Tree) -> jax.Array:
    """As ``bootstrap_once``, however often an environment was cut: every final observation is looked at."""
    value = jax.vmap(algorithm.bootstrap, (None, 0, 0))
    cut_off = jax.vmap(value, (None, 0, 0))(params, cut.carry, cut.final_observation)
    after = value(params, carry, following)
    last = jnp.zeros(cut.truncated.shape).at[-1].set(after)
    return jnp.where(cut.truncated, cut_off, last)
