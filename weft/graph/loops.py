"""The loops that algorithms share, as graphs: who sends what to whom.

Shapes come from ``jax.eval_shape``, never by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from weft.core.buffers import timestep_buffers
from weft.core.errors import GraphError
from weft.core.specs import EnvSpec, Spec
from weft.core.types import Acted, Finals, Timestep, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.graph.by_agent import for_agents
from weft.graph.fragment import Fragment, Port, Schema
from weft.graph.graph import Graph
from weft.graph.store import Store, batch_schema, of_learners
from weft.graph.stream import Delivery, Rhythm, Sharing, Stream


def on_policy(algorithm: Algorithm, policy: str = "", *, finals: int = 0) -> Graph:
    """env ⇄ act → learn → act: unrolls go to learn once and are forgotten. ``algorithm`` must be bound.

    With ``policy`` everything but env is that policy's: ``act.red``, ``unroll.red``. ``finals`` is how many final
    observations of cut episodes an unroll has room for, of each environment.
    """
    spec = algorithm.spec
    end = f".{policy}" if policy else ""
    state = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0)))
    timestep = timestep_schema(spec.environment, spec.envs)
    acted = acted_schema(algorithm, state.params)
    unroll = unroll_schema(algorithm, timestep, acted, finals)
    seen, chosen, rolled, published = (
        Port(f"timestep{end}", timestep),
        Port(f"action{end}", acted.action),
        Port(f"unroll{end}", unroll),
        Port(f"params{end}", state.params),
    )
    env = Fragment("env", (chosen,), (seen,), pure=spec.environment.pure)
    act = Fragment(f"act{end}", (seen, published), (chosen, rolled), code=algorithm)
    parts = (f"grad{end}", f"apply{end}")
    learn = Fragment(f"learn{end}", (rolled,), (published,), parts=parts, code=algorithm)
    return Graph(
        (env, act, learn),
        (
            Stream(seen.name, env.name, act.name, timestep, rhythm=Rhythm.STEP),
            Stream(chosen.name, act.name, env.name, acted.action, rhythm=Rhythm.STEP),
            Stream(rolled.name, act.name, learn.name, unroll, rhythm=Rhythm.UNROLL),
            Stream(published.name, learn.name, act.name, state.params, Delivery.LATEST, Rhythm.UPDATE),
        ),
    )


def off_policy(algorithm: Algorithm, store: Store, policy: str = "") -> Graph:
    """env ⇄ act → replay → learn → act: unrolls are kept, and learn gets batches of what is drawn from them.

    ``store`` says how many batches follow each unroll. Where ``algorithm``, which must be bound, has something to tell
    it of a batch (``learn_and_tell``), a stream takes that back. Unrolls have the final observations of truncated
    episodes: values that act could give for them would be stale when they are drawn.
    """
    if algorithm.spec.replicas > 1:
        store = of_learners(store, algorithm.spec.replicas)
    loop = on_policy(algorithm, policy, finals=cuts_at_most(algorithm))
    env, act, learn = loop.fragments
    environment = algorithm.spec.environment
    # A record that is not valid stands between two episodes, and what it shows may be of either.
    if environment.frames is not None and not environment.marks_valid and hasattr(store, "of_frames"):
        store = store.of_frames(environment.frames)
    end, (taken,) = f".{policy}" if policy else "", learn.inputs
    drawn = Port(f"batch{end}", batch_schema(store, taken.schema))
    state = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0)))
    told = jax.eval_shape(lambda s, b: algorithm.learn_and_tell(s, b)[2], state, drawn.schema)
    back = (Port(f"feedback{end}", told),) if jax.tree.leaves(told) else ()
    replay = Fragment(f"replay{end}", (taken, *back), (drawn,), code=store)
    learn = Fragment(learn.name, (drawn,), (*learn.outputs, *back), code=algorithm)
    streams = [replace(s, target=replay.name) if s.name == taken.name else s for s in loop.streams]
    often: dict[str, Any] = {"rhythm": Rhythm.UPDATE, "sharing": Sharing.ANY}
    streams.insert(3, Stream(drawn.name, replay.name, learn.name, drawn.schema, **often))
    streams += [Stream(port.name, learn.name, replay.name, port.schema, feedback=True, **often) for port in back]
    return Graph((env, act, replay, learn), tuple(streams))


def cuts_at_most(algorithm: Algorithm) -> int:
    """How often an unroll may cut one environment's episodes: every step, where their limit is not known."""
    limit, length = algorithm.spec.environment.max_episode_steps, algorithm.unroll
    return length if limit is None else min(length, 1 + (length - 1) // max(limit, 1))


def several_policies(algorithms: Mapping[str, Algorithm], spec: Spec) -> Graph:
    """One env with a team for each policy, and an act and a learn for each: ``act.red``, ``learn.red``, ``act.blue`` …

    ``algorithms`` has one for each of the environment's teams, all with unrolls of the same length.
    """
    teams = spec.environment.teams
    if set(algorithms) != set(teams):
        raise GraphError(
            f"policies {', '.join(sorted(algorithms))} were given, and environment {spec.environment.name!r} has the "
            f"teams {', '.join(sorted(teams)) or 'none'}: give one policy for each team."
        )
    lengths = {algorithm.unroll for algorithm in algorithms.values()}
    if len(lengths) > 1:
        raise GraphError(f"policies beside one env need unrolls of the same length, got {sorted(lengths)}")
    loops = {
        name: on_policy(
            for_agents(algorithm, teams[name]).with_spec(
                Spec(teams[name], spec.envs, spec.learn_steps, spec.steps, replicas=spec.replicas)
            ),
            name,
        )
        for name, algorithm in algorithms.items()
    }
    envs = [loop.fragments[0] for loop in loops.values()]
    env = Fragment(
        "env",
        tuple(port for part in envs for port in part.inputs),
        tuple(port for part in envs for port in part.outputs),
        pure=spec.environment.pure,
    )
    acts, learns = ([loop.fragments[k] for loop in loops.values()] for k in (1, 2))
    return Graph((env, *acts, *learns), tuple(stream for loop in loops.values() for stream in loop.streams))


def timestep_schema(spec: EnvSpec, envs: int) -> Timestep:
    """What ``envs`` environments of a spec send to act: a Timestep of ``[B, ...]`` shapes."""
    schema: Timestep = as_schema(timestep_buffers(spec, (envs,)))
    return schema


def acted_schema(algorithm: Algorithm, params: Schema) -> Acted:
    """What act gives for a batch: an Acted of ``[B, ...]`` shapes."""
    spec = algorithm.spec
    one = policy_view(timestep_schema(spec.environment, 1))
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), one)
    carry = as_schema(algorithm.initial_carry())
    key, step = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    acted = jax.eval_shape(algorithm.act_at, params, carry, one, key, step)
    return widen(acted, (spec.envs,))  # type: ignore[no-any-return]


def unroll_schema(algorithm: Algorithm, timestep: Timestep, acted: Acted, finals: int = 0) -> Unroll:
    """What act sends to learn: an Unroll of ``[T, B, ...]`` shapes, with room for ``finals`` cuts."""
    length = (algorithm.unroll,)
    block = widen(timestep, length)
    flag = block.terminated
    return Unroll(
        observation=block.observation,
        first=flag,
        action=widen(acted.action, length),
        extras=widen(acted.extras, length),
        reward=block.reward,
        terminated=flag,
        truncated=flag,
        bootstrap=block.reward,
        carry=acted.carry,
        last_observation=timestep.observation,
        last_first=timestep.terminated,
        action_mask=block.action_mask,
        valid=block.valid,
        finals=finals_schema(timestep.observation, finals),
    )


def finals_schema(observation: Schema, count: int) -> Finals | None:
    """The shapes of ``count`` final observations of each environment, of ``[B, ...]`` ones; None where there are none.

    Leaves are ``jax.ShapeDtypeStruct``.
    """
    if not count:
        return None
    envs = jax.tree.leaves(observation)[0].shape[0]
    step: Any = jax.ShapeDtypeStruct((count, envs), jnp.int32)
    return Finals(widen(observation, (count,)), step)


def policy_view(timestep: Timestep) -> Timestep:
    """A timestep as act sees it: without the final observation, which only bootstrapping needs."""
    return timestep._replace(final_observation=None, valid=None)


def widen(schema: Schema, leading: tuple[int, ...]) -> Schema:
    """A schema with ``leading`` axes in front of every leaf."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct((*leading, *s.shape), s.dtype), schema)


def as_schema(tree: Tree) -> Schema:
    """The schema of a tree of arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)
