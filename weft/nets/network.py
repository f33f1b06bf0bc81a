"""A network is a pair of functions, ``init`` and ``apply``; a recurrent one has a carry besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.types import Array, Tree


class NetworkOutput(NamedTuple):
    """What a policy and value network gives for one observation."""

    logits: jax.Array  # [..., num_params] parameters of the action's distribution
    value: jax.Array  # [...]
    carry: Tree = ()  # recurrent state; () for a feed-forward network


class Network(NamedTuple):
    """A policy and value network: ``init(key) -> params``, ``apply(params, carry, observation) -> NetworkOutput``.

    ``carry`` is the state at an episode's start, ``()`` for a feed-forward network. Observations have no batch axis or
    any number in front; a recurrent network sees one step.
    """

    init: Callable[[jax.Array], Tree]
    apply: Callable[[Tree, Tree, Tree], NetworkOutput]
    carry: Tree = ()

    @property
    def recurrent(self) -> bool:
        """Whether it remembers: whether its carry has any array."""
        return bool(jax.tree.leaves(self.carry))


def as_network(given: Any) -> Network:
    """A user's network as a Network.

    Taken: a Network, or a pair ``(init, apply)`` with ``init(key) -> params`` and ``apply(params, observation) ->
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


def apply_sequence(network: Network, params: Tree, carry: Tree, observation: Tree, first: Array) -> NetworkOutput:
    """Run a network along time, starting the carry anew where ``first`` ([T] bool) says so.

    ``observation`` has a leading T axis, and so do the logits and values; ``carry`` is the state before the first
    step, and the output's carry the one after the last.
    """

    def step(carry: Tree, x: tuple[Tree, Array]) -> tuple[Tree, tuple[jax.Array, jax.Array]]:
        observation, first = x
        output = network.apply(params, reset_carry(network, carry, first), observation)
        return output.carry, (output.logits, output.value)

    carry, (logits, value) = jax.lax.scan(step, carry, (observation, first))
    return NetworkOutput(logits, value, carry)


def reset_carry(network: Network, carry: Tree, first: Array) -> Tree:
    """The carry to act with: the network's own start where ``first`` ([] bool) is set, else ``carry``."""
    return jax.tree.map(lambda start, now: jnp.where(first, start, now), network.carry, carry)
