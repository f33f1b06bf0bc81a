"""The compiled functions around a host environment: what a step calls, and what an unroll calls.

A step's act call gives the action and nothing else where it can: what learn wants remembered (log-probability, value)
is then found for the whole unroll at once, inside learn's program, from what act saw and the noise it was handed. That
makes the step's call much shorter, and the numbers do not depend on how environments were batched for inference. An
act that carries something from step to step keeps its extras as it goes. Where nobody asks for the same numbers however
environments are batched, so does one of a large network: its second look takes longer than what it saves
(``worth_recalling``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.keys import step_keys
from weft.core.types import Acted, Array, Timestep, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.graph.loops import as_schema, policy_view, timestep_schema, widen
from weft.runtimes.compiled.hoist import hoist
from weft.runtimes.compiled.replicas import Layout, Spread
from weft.runtimes.hosted.act_call import ActCall
from weft.runtimes.loop.engine import is_key
from weft.runtimes.packing import pack

SMALL = 100_000
"""Params of a network that looks at an unroll again in less time than its steps' calls save by giving the action alone:
on a CPU, two towers of 64 x 64 look 1,024 times in 0.2 ms, two of 256 x 256 in 1 ms, and a convolutional one in 30 ms;
128 calls save 0.8 ms."""
_SPLIT: Any = Spread.SPLIT
_SPLIT_TIME: Any = Spread.SPLIT_TIME
UNROLL_SPREAD = Unroll(**dict.fromkeys(Unroll._fields, _SPLIT_TIME))._replace(
    carry=_SPLIT, last_observation=_SPLIT, last_first=_SPLIT
)


class Recall(NamedTuple):
    """What act saw in an unroll and what it was handed: enough to find its extras again."""

    timestep: Timestep  # [T, B, ...]
    noise: Tree  # [T, B, ...]


class ActPrograms(NamedTuple):
    """The compiled functions of one act; shapes are those of one replica and one seed."""

    noise: Callable[..., Tree]  # keys [B], the first step's number -> [T, B, ...]
    act: ActCall  # a step's, which gives an Acted; where ``recalls``, the action alone
    bootstrap: Callable[[Tree, Tree, Tree], Array]
    act_and_value: ActCall  # act, and bootstrap of the same observations: one pass, one call, packed
    acted_and_value: Tree  # the shapes of what that has packed, for a batch of one: an Acted, and the value
    extras: Callable[[tuple[Array, ...], Tree, Timestep, Tree], dict[str, Tree]]  # of a whole unroll, [T, B, ...]
    again: Callable[[Tree, Tree, Recall], dict[str, Tree]]  # the same, to be traced inside another program
    recalls: bool  # a step's act leaves the extras out: they are found from a Recall


def can_recall(algorithm: Algorithm) -> bool:
    """Whether act's extras can be found for a whole unroll at once: it carries nothing from step to step."""
    return not jax.tree.leaves(algorithm.initial_carry())


def worth_recalling(algorithm: Algorithm) -> bool:
    """Whether that takes less time than to keep what each call gives, where it can be done."""
    return bool(sum(leaf.size for leaf in jax.tree.leaves(_params_of(algorithm))) <= SMALL)


def act_programs(algorithm: Algorithm, layout: Layout, *, recalls: bool = True) -> ActPrograms:
    """The functions, to be compiled when they are first called.

    Without ``recalls`` every act call gives its extras, as it must where params may change within an unroll. Where act
    has a carry it always does.
    """
    params = _params_of(algorithm)
    structure = jax.tree.structure(params)
    start = algorithm.initial_carry()
    recalls = recalls and can_recall(algorithm)
    several = policy_view(timestep_schema(algorithm.spec.environment, 1))
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), several)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    act = hoist(algorithm.act_at, params, as_schema(start), one, more=(number,))
    drawn = jax.eval_shape(act.early, jax.eval_shape(lambda: jax.random.key(0)), number)

    def for_numpy(early: Tree) -> Tree:
        return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, early)  # NumPy has no keys

    def noise(keys: Array, step: Array) -> Tree:
        # Keys count the steps of an environment from 1, act from 0: key 0 went to the first reset.
        numbers = step - 1 + jnp.arange(algorithm.unroll, dtype=jnp.int32)
        return for_numpy(jax.vmap(jax.vmap(act.early, (0, None)))(step_keys(keys, step, algorithm.unroll), numbers))

    def act_batch(params: Tree, carry: Tree, timestep: Timestep, noise: Tree) -> Acted:
        noise = jax.tree.map(lambda like, x: jax.random.wrap_key_data(x) if is_key(like) else x, drawn, noise)
        acted: Acted = jax.vmap(act.rest, (0, None, 0, 0))(noise, params, carry, timestep)
        return acted

    def act_step(params: Tree, carry: Tree, timestep: Timestep, noise: Tree) -> Acted:
        acted = act_batch(params, carry, timestep, noise)
        # A copy: a carry that is the observation itself would be a view of a buffer that is written again.
        carry = jax.tree.map(jnp.copy, acted.carry)
        return Acted(acted.action, carry, {} if recalls else acted.extras)

    def action_alone(params: Tree, carry: Tree, timestep: Timestep, noise: Tree) -> Array:
        action: Array = act_batch(params, carry, timestep, noise).action
        return action

    def bootstrap(params: Tree, carry: Tree, observation: Tree) -> Array:
        return jax.vmap(algorithm.bootstrap, (None, 0, 0))(params, carry, observation)

    def act_and_value(params: Tree, carry: Tree, timestep: Timestep, noise: Tree) -> tuple[Acted, Array]:
        value = bootstrap(params, carry, timestep.observation)
        return act_step(params, carry, timestep, noise), value

    def packed_act_and_value(*inputs: Tree) -> Tree:
        return pack(act_and_value(*inputs))

    def again(params: Tree, carry: Tree, recall: Recall) -> dict[str, Tree]:
        found: Acted = jax.vmap(act_batch, (None, None, 0, 0))(params, carry, recall.timestep, recall.noise)
        return found.extras

    def extras_of(leaves: tuple[Array, ...], carry: Tree, timestep: Timestep, noise: Tree) -> dict[str, Tree]:
        return again(jax.tree.unflatten(structure, leaves), carry, Recall(timestep, noise))

    inputs = params, widen(as_schema(start), (1,)), several, widen(jax.eval_shape(for_numpy, drawn), (1,))
    shared, split, plain, split_time = Spread.SHARED, Spread.SPLIT, Spread.PLAIN, Spread.SPLIT_TIME
    return ActPrograms(
        noise=layout.wrap(noise, (split, plain), split_time),
        act=ActCall(action_alone if recalls else act_step, layout, split, *inputs),
        bootstrap=layout.wrap(bootstrap, (shared, split, split), split),
        act_and_value=ActCall(packed_act_and_value, layout, split, *inputs),
        acted_and_value=jax.eval_shape(act_and_value, *inputs),
        extras=layout.wrap(extras_of, (shared, split, split_time, split_time), split_time),
        again=again,
        recalls=recalls,
    )


def _params_of(algorithm: Algorithm) -> Tree:
    return jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
