"""What every actor-critic shares: a network and an action distribution made from fields, and acting with them.

An algorithm derives from ``ActorCritic``, declares the hyper-parameters of its learning, and defines ``rule``, ``act``
and its loss. Its params are the network's weights unless it overrides ``init``, ``look`` and ``bootstrap``.

The network and the distribution are chosen from the environment's spaces, so that the same file serves discrete,
multi-discrete and continuous actions, feed-forward and recurrent networks, vectors and images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.ranges import check_ranges
from weft.core.errors import ConfigError
from weft.core.specs import Box, describe
from weft.core.types import Acted, Array, Timestep, TrainState, Tree
from weft.graph.algorithm import Algorithm
from weft.nets import Network, NetworkOutput, actor_critic, as_network, central_actor_critic, check_network, reset_carry
from weft.nets.entities import HEADS
from weft.ops.distributions import Distribution, distribution_for


@dataclass(frozen=True)
class ActorCritic(Algorithm):
    """The fields that the network and the action distribution are made from."""

    hidden: tuple[int, ...] = (64, 64)  # layers of each tower; recurrent: only the first; images: a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"  # of those layers; a CNN uses relu
    recurrent: Literal["", "gru", "lstm"] = ""
    recurrent_size: int = 64
    attention: int = 0  # size of the embedding of entities with masks, read by self-attention; 0: they are flattened
    distribution: Literal["auto", "squashed"] = "auto"  # for continuous actions: clipped Gaussian, or tanh-squashed
    deviation: float = 1.0  # of continuous actions, when learning begins
    network: Any = None  # your own: weft.Network or a pair (init, apply)

    @property
    def actions(self) -> Distribution:
        """The distribution that actions are drawn from."""
        return distribution_for(self.spec.environment.action, kind=self.distribution)

    @property
    def net(self) -> Network:
        """The policy and value network."""
        if self.network is not None:
            return as_network(self.network)
        build = central_actor_critic if self.central_critic else actor_critic
        return build(
            self.spec.environment.observation,
            self.actions.num_params,
            hidden=self.hidden,
            activation=self.activation,
            deviation=self.deviation if isinstance(self.spec.environment.action, Box) else None,
            recurrent=self.recurrent,
            recurrent_size=self.recurrent_size,
            attention=self.attention,
        )

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``. Its state has the same structure for every step."""
        raise ConfigError(f"{type(self).__name__} must define rule(self, step) -> optax.GradientTransformation")

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        if self.attention % HEADS:
            raise ConfigError(
                f"{type(self).__name__}.attention must be a multiple of its {HEADS} heads, got {self.attention}"
            )
        net, env = self.net, self.spec.environment
        if self.network is not None:
            check_network(type(self).__name__, net, env.observation, self.actions.num_params, describe(env.action))

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params: the network's weights, and nothing else."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        return TrainState(params, self.rule(0).init(params), jnp.zeros((), jnp.int32), learn_key)

    def initial_carry(self) -> Tree:
        """The network's own carry."""
        return self.net.carry

    def look(self, params: Tree, carry: Tree, timestep: Timestep) -> NetworkOutput:
        """What the network gives for one environment's step: logits of the allowed actions, value, next carry."""
        output = self.net.apply(params, reset_carry(self.net, carry, timestep.first), timestep.observation)
        return output._replace(logits=self.allowed(output.logits, timestep.action_mask))

    def allowed(self, logits: jax.Array, mask: Array | None) -> jax.Array:
        """``logits`` (``[..., num_params]``) under which only the actions in ``mask`` occur; None allows all."""
        return logits if mask is None else self.actions.mask(logits, mask)

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The most likely action."""
        output = self.look(params, carry, timestep)
        return Acted(self.actions.mode(output.logits), output.carry)

    def bootstrap(self, params: Tree, carry: Tree, observation: Tree) -> Array:
        """The value of an observation; ``carry`` is the one after the step before it."""
        return self.net.apply(params, carry, observation).value
