"""A network is a pair of functions, ``init`` and ``apply``; a recurrent one also has a carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import SpaceTree
from weft.core.types import Array, Tree


class NetworkOutput(NamedTuple):
    """The output of a policy and value network for one observation."""

    logits: jax.Array  # [..., num_params] parameters of the action distribution
    value: jax.Array  # [...]
    carry: Tree = ()  # recurrent state; () for a feed-forward network


class Network(NamedTuple):
    """A policy and value network: ``init(key) -> params``, ``apply(params, carry, observation) -> NetworkOutput``.

    ``carry`` is the state at an episode's start, ``()`` for a feed-forward network. Observations may have any number of
    batch axes in front; a recurrent network sees one step. ``batch(params, observation)``, where a feed-forward network
    has it, is a faster way to the same for ``[N, ...]`` observations.
    """

    init: Callable[[jax.Array], Tree]
    apply: Callable[[Tree, Tree, Tree], NetworkOutput]
    carry: Tree = ()
    batch: Callable[[Tree, Tree], NetworkOutput] | None = None

    @property
    def recurrent(self) -> bool:
        """Whether it has memory: whether its carry has any array."""
        return bool(jax.tree.leaves(self.carry))


def as_network(given: Any) -> Network:
    """A user's network as a Network.

    ``given`` is a Network, or a pair ``(init, apply)`` with ``init(key) -> params`` and ``apply(params, observation) ->
    (logits, value)``.
    """
    if isinstance(given, Network):
        return given
    if isinstance(given, tuple) and len(given) == 2 and all(callable(f) for f in given):
        init, apply = given

        def feed_forward(params: Tree, carry: Tree, observation: Tree) -> NetworkOutput:
            logits, value = apply(params, observation)
            return NetworkOutput(logits, value, carry)

        return Network(init, feed_forward)
    raise ConfigError(
        f"a network must be a weft.Network or a pair (init, apply) of functions, got {given!r}. "
        "init(key) -> params; apply(params, observation) -> (logits, value)."
    )


def check_network(owner: str, network: Network, observation: SpaceTree, num_params: int, actions: str) -> None:
    """Refuse a user's network whose output for one observation does not have the shapes that the distribution needs.

    ``owner`` and ``actions`` are words for the message: the algorithm's name, and the action space. Only shapes are
    computed.
    """
    one = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype), observation)
    params = jax.eval_shape(network.init, jax.eval_shape(lambda: jax.random.key(0)))
    output = jax.eval_shape(network.apply, params, network.carry, one)
    got, want = (output.logits.shape, output.value.shape), ((num_params,), ())
    if got != want:
        raise ConfigError(
            f"{owner}.network gives logits of shape {list(got[0])} and a value of shape {list(got[1])} for one "
            f"observation; expected {list(want[0])}, for actions {actions}, and []."
        )


def apply_batch(network: Network, params: Tree, observation: Tree) -> NetworkOutput:
    """Run a feed-forward network over ``[N, ...]`` observations."""
    if network.batch is not None:
        return network.batch(params, observation)
    return jax.vmap(lambda x: network.apply(params, (), x))(observation)


def apply_unroll(network: Network, params: Tree, carry: Tree, observation: Tree, first: Array) -> NetworkOutput:
    """Run a network over ``[T, B, ...]`` observations: ``[T, B]`` logits and values, and the carry after the last step.

    ``carry`` (``[B, ...]``) is the state before the first step; it is reset where ``first`` (``[T, B]`` bool) is set. A
    feed-forward network sees all steps as one batch, and its carry is returned unchanged.
    """
    if network.recurrent:

        def along(carry: Tree, observation: Tree, first: Array) -> tuple[jax.Array, jax.Array, Tree]:
            return tuple(apply_sequence(network, params, carry, observation, first))

        logits, value, carry = jax.vmap(along, in_axes=(0, 1, 1), out_axes=(1, 1, 0))(carry, observation, first)
        return NetworkOutput(logits, value, carry)
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), observation)
    output = apply_batch(network, params, flat)
    logits, value = (x.reshape((*first.shape, *x.shape[1:])) for x in (output.logits, output.value))
    return NetworkOutput(logits, value, carry)


def apply_sequence(network: Network, params: Tree, carry: Tree, observation: Tree, first: Array) -> NetworkOutput:
    """Run a network along time, resetting the carry where ``first`` ([T] bool) is set.

    ``observation``, the logits and the values have a leading T axis. ``carry`` is the state before the first step; the
    output's carry is the state after the last.
    """

    def step(carry: Tree, x: tuple[Tree, Array]) -> tuple[Tree, tuple[jax.Array, jax.Array]]:
        observation, first = x
        output = network.apply(params, reset_carry(network, carry, first), observation)
        return output.carry, (output.logits, output.value)

    carry, (logits, value) = jax.lax.scan(step, carry, (observation, first))
    return NetworkOutput(logits, value, carry)


def reset_carry(network: Network, carry: Tree, first: Array) -> Tree:
    """The network's initial carry where ``first`` ([] bool) is set, else ``carry``."""
    return jax.tree.map(lambda start, now: jnp.where(first, start, now), network.carry, carry)
