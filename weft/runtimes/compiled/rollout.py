"""Acting in JAX environments, compiled: ``T`` steps of ``B`` environments as one scan, ending in an unroll.

Everything is a pure function of a LoopState; the engines decide where and how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.buffers import of_team, timestep_buffers
from weft.core.errors import EnvironmentFault
from weft.core.keys import env_keys, environment_key, fragment_key, step_keys
from weft.core.specs import EnvSpec, Space, allocate
from weft.core.types import Acted, Array, Finals, Timestep, Tree, Unroll
from weft.envs.autoreset import advance, begin
from weft.envs.protocol import JaxEnv
from weft.graph.algorithm import Algorithm
from weft.graph.graph import schema_difference
from weft.graph.loops import as_schema, policy_view
from weft.runtimes.compiled.episodes import EpisodeSlices, Running, slices_of
from weft.runtimes.compiled.hoist import hoist
from weft.runtimes.packing import scan_packed


class LoopState(NamedTuple):
    """Where ``B`` environments and everything that acts in them stand between two unrolls."""

    env: Tree  # [B, ...]
    timestep: Timestep  # [B, ...] what is seen next, by all teams
    carry: dict[str, Tree]  # [B, ...] by act
    running: dict[str, Running]  # [B] the episodes that are going on, by act
    env_keys: Array  # [B] one for each environment, by its index
    act_keys: dict[str, Array]  # [B] by act
    step: Array  # [] int32: steps that each environment has made


class Rollout(NamedTuple):
    """``init(seed, indices) -> LoopState``; ``unroll(params, state) -> (state, unrolls, slices)``, all three by act."""

    init: Callable[[Array, Array], LoopState]
    unroll: Callable[[dict[str, Tree], LoopState], tuple[LoopState, dict[str, Unroll], dict[str, EpisodeSlices]]]


class Actor(NamedTuple):
    """An act fragment: its name, its bound algorithm, and the team that it acts for (empty: there are none).

    ``finals`` is how many final observations of cut episodes its unrolls have room for, of each environment.
    """

    name: str
    algorithm: Algorithm
    team: str = ""
    finals: int = 0


class _Acting(NamedTuple):
    """What a step hands to the next."""

    env: Tree
    timestep: Timestep
    carry: tuple[Tree, ...]
    running: tuple[Running, ...]


class _Recorded(NamedTuple):
    """What a step leaves behind of one act."""

    observation: Tree  # what act saw
    action_mask: Array | None
    acted: Acted  # what it did, with its carry after the step
    reward: Array
    terminated: Array
    truncated: Array
    final_observation: Tree
    running: Running  # with the step's reward, before any restart


def make_rollout(actors: Sequence[Actor], env: JaxEnv) -> Rollout:
    """The rollout of bound algorithms in an environment: one, or one for each team."""
    length = actors[0].algorithm.unroll
    _check_spaces(env)

    def init(seed: Array, indices: Array) -> LoopState:
        keys = env_keys(environment_key(seed), indices)
        state, timestep = jax.vmap(lambda key: begin(env, key))(step_keys(keys, jnp.int32(0), 1)[0])
        batch = indices.shape[0]
        return LoopState(
            state,
            policy_view(timestep),
            {actor.name: broadcast(actor.algorithm.initial_carry(), batch) for actor in actors},
            {actor.name: Running(jnp.zeros(batch), jnp.zeros(batch, jnp.int32)) for actor in actors},
            keys,
            {actor.name: env_keys(fragment_key(seed, actor.name), indices) for actor in actors},
            jnp.int32(0),
        )

    one = jax.eval_shape(init, jnp.int32(0), jnp.zeros(1, jnp.int32))
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), one._replace(step=None))
    acts = []
    actions: dict[str, Tree] = {}
    for actor in actors:
        algorithm = actor.algorithm
        params_schema = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
        seen = of_team(one.timestep, actor.team)
        number = jax.ShapeDtypeStruct((), jnp.int32)
        acts.append(hoist(algorithm.act_at, params_schema, one.carry[actor.name], seen, more=(number,)))
        acted = jax.eval_shape(
            algorithm.act_at, params_schema, one.carry[actor.name], seen, one.act_keys[actor.name], number
        )
        actions[actor.team] = acted.action
    chosen = actions if actors[0].team else actions[""]
    advance_env = hoist(lambda state, action, key: advance(env, state, action, key), one.env, chosen)

    # An episode that is cut at its limit has lasted that long: if the limit is beyond T, no environment is cut twice.
    limit = env.spec.max_episode_steps
    at_most_one_cut = limit is not None and limit > length
    bootstrap = bootstrap_once if at_most_one_cut else bootstrap_all

    def unroll(
        params: dict[str, Tree], state: LoopState
    ) -> tuple[LoopState, dict[str, Unroll], dict[str, EpisodeSlices]]:
        # Step 0 of an environment's keys went to its first reset, so its steps count from 1.
        numbers = state.step + jnp.arange(length, dtype=jnp.int32)
        act_noise = tuple(
            jax.vmap(jax.vmap(act.early, (0, None)))(
                step_keys(state.act_keys[actor.name], state.step + 1, length), numbers
            )
            for act, actor in zip(acts, actors, strict=True)
        )
        env_noise = jax.vmap(jax.vmap(advance_env.early))(step_keys(state.env_keys, state.step + 1, length))

        def step(now: _Acting, noise: tuple[tuple[Tree, ...], Tree]) -> tuple[_Acting, tuple[_Recorded, ...]]:
            views = [of_team(now.timestep, actor.team) for actor in actors]
            did = [
                jax.vmap(act.rest, (0, None, 0, 0))(noise[0][k], params[actor.name], now.carry[k], views[k])
                for k, (act, actor) in enumerate(zip(acts, actors, strict=True))
            ]
            by_team = {actor.team: acted.action for actor, acted in zip(actors, did, strict=True)}
            action = by_team if actors[0].team else did[0].action
            env_state, following = jax.vmap(advance_env.rest)(noise[1], now.env, action)
            recorded = []
            for k, actor in enumerate(actors):
                theirs = of_team(following, actor.team)
                recorded.append(
                    _Recorded(
                        views[k].observation,
                        views[k].action_mask,
                        did[k],
                        theirs.reward,
                        theirs.terminated,
                        theirs.truncated,
                        theirs.final_observation,
                        now.running[k].step(theirs.reward),
                    )
                )
            restarted = tuple(record.running.restart(following.first) for record in recorded)
            carries = tuple(acted.carry for acted in did)
            return _Acting(env_state, policy_view(following), carries, restarted), tuple(recorded)

        names = [actor.name for actor in actors]
        start = _Acting(
            state.env, state.timestep, tuple(state.carry[n] for n in names), tuple(state.running[n] for n in names)
        )
        end, recorded = scan_packed(step, start, (act_noise, env_noise), length, most_in_a_row=4)
        unrolls: dict[str, Unroll] = {}
        slices: dict[str, EpisodeSlices] = {}
        for k, (actor, record) in enumerate(zip(actors, recorded, strict=True)):
            last, ended = of_team(end.timestep, actor.team), record.terminated | record.truncated
            cut = Cut(record.truncated, record.acted.carry, record.final_observation)
            unrolls[actor.name] = Unroll(
                observation=record.observation,
                first=jnp.concatenate([state.timestep.first[None], ended[:-1]]),
                action=record.acted.action,
                extras=record.acted.extras,
                reward=record.reward,
                terminated=record.terminated,
                truncated=record.truncated,
                bootstrap=bootstrap(actor.algorithm, params[actor.name], cut, end.carry[k], last.observation),
                carry=state.carry[actor.name],
                last_observation=last.observation,
                last_first=end.timestep.first,
                action_mask=record.action_mask,
                finals=finals_of(cut, actor.finals) if actor.finals else None,
            )
            found = slices_of(record.running, ended)
            if at_most_one_cut:
                found = found._replace(cut_again=(record.truncated.sum(0) > 1).sum(dtype=jnp.int32))
            slices[actor.name] = found
        after = LoopState(
            end.env,
            end.timestep,
            dict(zip(names, end.carry, strict=True)),
            dict(zip(names, end.running, strict=True)),
            state.env_keys,
            state.act_keys,
            state.step + length,
        )
        return after, unrolls, slices

    return Rollout(init, unroll)


def broadcast(start: Tree, batch: int) -> Tree:
    """An initial carry for ``batch`` environments."""
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (batch, *jnp.shape(x))), start)


def _check_spaces(env: JaxEnv) -> None:
    """Refuse an environment whose reset or step gives something other than its spec says; nothing is computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    spec = env.spec
    want = as_schema(allocate(spec.observation, ()))

    def taken(space: Space) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(space.shape, space.dtype)

    policy_action: Any = {t: taken(s.action) for t, s in spec.teams.items()} if spec.teams else taken(spec.action)
    state, observation = jax.eval_shape(env.reset, key)
    native = jax.eval_shape(lambda action: spec.to_native(action, jnp), policy_action)
    stepped, transition = jax.eval_shape(env.step, state, native, key)
    reward: Any = transition.reward
    if spec.teams and (not isinstance(reward, dict) or set(reward) != set(spec.teams)):
        raise EnvironmentFault(
            f"environment {spec.name!r}: step's reward must be a dict by team ({', '.join(sorted(spec.teams))}), got "
            f"{type(reward).__name__}."
        )
    shapes: Any = {t: s.reward_shape for t, s in spec.teams.items()} if spec.teams else spec.reward_shape
    wanted = jax.tree.map(lambda x, shape: jax.ShapeDtypeStruct(shape, x.dtype), reward, shapes)
    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    wrong = {
        "reset's observation disagrees with its spec": schema_difference(want, observation),
        "step's observation disagrees with its spec": schema_difference(want, transition.observation),
        f"step's reward must be {'one number for each agent' if spec.agents else 'one number'}": schema_difference(
            wanted, reward
        ),
        "step's flags must be booleans": schema_difference((flag, flag), (transition.terminated, transition.truncated)),
        "the state after step disagrees with that after reset": schema_difference(state, stepped),
    }
    if spec.action_mask:
        mask = jax.eval_shape(env.action_mask, state)  # type: ignore[attr-defined]
        choices: Any = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), _masks(spec))
        wrong["its action_mask disagrees with its spec"] = schema_difference(choices, mask)
    for what, difference in wrong.items():
        if difference:
            raise EnvironmentFault(
                f"environment {spec.name!r}: {what}: {difference}. Correct its spec, or what it returns."
            )


def _masks(spec: EnvSpec) -> Tree:
    """An action mask of ``spec``, or a dict of such by team, with a leading axis of one."""
    return timestep_buffers(spec, (1,)).action_mask


class Cut(NamedTuple):
    """The episodes that an unroll cut: where, what act remembered then, and what it would have seen next."""

    truncated: Array  # [T, B] bool
    carry: Tree  # [T, B, ...]
    final_observation: Tree  # [T, B, ...]


def finals_of(cut: Cut, count: int) -> Finals:
    """The final observations of the first ``count`` episodes of each environment that an unroll cut."""
    length, envs = cut.truncated.shape
    steps = jnp.where(cut.truncated, jnp.arange(length, dtype=jnp.int32)[:, None], length)
    first = steps.min(0, keepdims=True) if count == 1 else jnp.sort(steps, axis=0)[:count]  # [F, B]
    rows = jnp.minimum(first, length - 1), jnp.arange(envs)
    return Finals(jax.tree.map(lambda x: x[rows], cut.final_observation), jnp.where(first < length, first, -1))


def bootstrap_once(algorithm: Algorithm, params: Tree, cut: Cut, carry: Tree, following: Tree) -> jax.Array:
    """``[T, B]`` (or ``[T, B, A]``) values of what would have followed, where each environment was cut at most once.

    That is where an episode was cut, and at the last step: ``carry`` and ``following`` are what came after it, ``[B,
    ...]``. Both are looked at in one batch. There is no branch on data: a GPU would have to wait for the host.
    """
    length, envs = cut.truncated.shape
    steps, rows = jnp.arange(length)[:, None], jnp.arange(envs)
    when = jnp.where(cut.truncated, steps, -1).max(0)  # [B]: the step at which an environment was cut, or -1
    at_cut = jax.tree.map(lambda x: x[jnp.maximum(when, 0), rows], (cut.carry, cut.final_observation))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), (carry, following), at_cut)
    after, cut_off = jnp.split(jax.vmap(algorithm.bootstrap, (None, 0, 0))(params, *both), 2)
    last = jnp.where(_beside(steps == length - 1, after[None]), after, 0.0)
    return jnp.where(_beside(steps == when, after[None]), cut_off, last)


def bootstrap_all(algorithm: Algorithm, params: Tree, cut: Cut, carry: Tree, following: Tree) -> jax.Array:
    """As ``bootstrap_once``, however often an environment was cut: every final observation is looked at."""
    value = jax.vmap(algorithm.bootstrap, (None, 0, 0))
    cut_off = jax.vmap(value, (None, 0, 0))(params, cut.carry, cut.final_observation)
    after = value(params, carry, following)
    last = jnp.zeros(cut_off.shape).at[-1].set(after)
    return jnp.where(_beside(cut.truncated, cut_off), cut_off, last)


def _beside(flag: Array, values: Array) -> Array:
    """``flag`` with as many axes as ``values``, which may have one of agents behind."""
    return flag.reshape(flag.shape + (1,) * (values.ndim - flag.ndim))
