"""The loops that algorithms share, as graphs: who sends what to whom.

Shapes come from ``jax.eval_shape``, never by hand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from weft.core.buffers import timestep_buffers
from weft.core.specs import EnvSpec
from weft.core.types import Acted, Timestep, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.graph.fragment import Fragment, Port, Schema
from weft.graph.graph import Graph
from weft.graph.stream import Delivery, Rhythm, Stream


def on_policy(algorithm: Algorithm) -> Graph:
    """env ⇄ act → learn → act: unrolls go to learn once and are forgotten. ``algorithm`` must be bound."""
    spec = algorithm.spec
    state = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0)))
    timestep = timestep_schema(spec.environment, spec.envs)
    acted = acted_schema(algorithm, state.params)
    unroll = unroll_schema(algorithm, timestep, acted)
    ports = {
        "timestep": Port("timestep", timestep),
        "action": Port("action", acted.action),
        "unroll": Port("unroll", unroll),
        "params": Port("params", state.params),
    }
    env = Fragment("env", (ports["action"],), (ports["timestep"],), pure=spec.environment.pure)
    act = Fragment("act", (ports["timestep"], ports["params"]), (ports["action"], ports["unroll"]))
    learn = Fragment("learn", (ports["unroll"],), (ports["params"],), parts=("grad", "apply"))
    return Graph(
        (env, act, learn),
        (
            Stream("timestep", "env", "act", timestep, rhythm=Rhythm.STEP),
            Stream("action", "act", "env", acted.action, rhythm=Rhythm.STEP),
            Stream("unroll", "act", "learn", unroll, rhythm=Rhythm.UNROLL),
            Stream("params", "learn", "act", state.params, Delivery.LATEST, Rhythm.UPDATE),
        ),
    )


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
    acted = jax.eval_shape(algorithm.act, params, carry, one, jax.eval_shape(lambda: jax.random.key(0)))
    return widen(acted, (spec.envs,))  # type: ignore[no-any-return]


def unroll_schema(algorithm: Algorithm, timestep: Timestep, acted: Acted) -> Unroll:
    """What act sends to learn: an Unroll of ``[T, B, ...]`` shapes."""
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
    )


def policy_view(timestep: Timestep) -> Timestep:
    """A timestep as act sees it: without the final observation, which only bootstrapping needs."""
    return timestep._replace(final_observation=None, valid=None)


def widen(schema: Schema, leading: tuple[int, ...]) -> Schema:
    """A schema with ``leading`` axes in front of every leaf."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct((*leading, *s.shape), s.dtype), schema)


def as_schema(tree: Tree) -> Schema:
    """The schema of a tree of arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)
