"""A2C (Mnih et al., arXiv 1602.01783), read top to bottom: one update for each batch. Run asynchronously it is A3C.

    act     sample an action
    grad    advantages of n-step returns (or GAE, arXiv 1506.02438), then the gradient of the policy's loss, the value's
            error and the entropy
    apply   one step of the optimiser

It takes every batch for one that the params it is given have made. For batches that older params made there is IMPALA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.ranges import check_ranges
from weft.core.errors import UnknownName
from weft.core.specs import Box, describe
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.nets import ACTIVATIONS, Network, NetworkOutput, actor_critic, apply_unroll, as_network, check_network
from weft.nets import reset_carry as reset
from weft.ops import distributions, losses, masked
from weft.ops.gae import gae
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear

OPTIMIZERS = ("adam", "rmsprop")


@dataclass(frozen=True)
class A2C(Algorithm):
    """The hyper-parameters: the one place where their defaults live."""

    unroll: int = 5  # steps of each environment in a batch, T
    learning_rate: float = 7e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"
    discount: float = 0.99
    trace_decay: float = 1.0  # 1: returns to the end of the unroll, as in the paper; less: GAE's lambda
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    max_gradient_norm: float = 0.5
    normalise_advantages: bool = False  # in each batch
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then held within this, either way
    hidden: tuple[int, ...] = (64, 64)  # of each tower; recurrent: the first, before the cell; images: a CNN
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"  # of those layers; a CNN has relu
    recurrent: Literal["", "gru", "lstm"] = ""
    recurrent_size: int = 64
    distribution: Literal["auto", "squashed"] = "auto"  # for continuous actions: clipped Gaussian, or tanh-squashed
    network: Any = None  # your own: weft.Network or a pair (init, apply)

    # ---- what it is made of ----------------------------------------------------------------------------------------

    @property
    def actions(self) -> distributions.Distribution:
        """The distribution that actions are drawn from."""
        return distributions.distribution_for(self.spec.environment.action, kind=self.distribution)

    @property
    def net(self) -> Network:
        """The policy and value network."""
        if self.network is not None:
            return as_network(self.network)
        return actor_critic(
            self.spec.environment.observation,
            self.actions.num_params,
            hidden=self.hidden,
            activation=self.activation,
            log_std=isinstance(self.spec.environment.action, Box),
            recurrent=self.recurrent,
            recurrent_size=self.recurrent_size,
        )

    @property
    def rule(self) -> optax.GradientTransformation:
        """The optimiser behind a bound on the gradient's norm, on one long vector: fewer operations than by leaf."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)
        rule = optax.adam(rate, eps=1e-5) if self.optimizer == "adam" else optax.rmsprop(rate, decay=0.99, eps=1e-5)
        return optax.flatten(optax.chain(optax.clip_by_global_norm(self.max_gradient_norm), rule))

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        for what, known in (("activation", ACTIVATIONS), ("optimizer", OPTIMIZERS)):
            if getattr(self, what) not in known:
                raise UnknownName(what, getattr(self, what), known)
        net, env = self.net, self.spec.environment
        if self.network is not None:
            check_network("A2C", net, env.observation, self.actions.num_params, describe(env.action))

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params: the network's weights, and nothing else."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        return TrainState(params, self.rule.init(params), jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def initial_carry(self) -> Tree:
        """The network's own carry."""
        return self.net.carry

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """Sample an action."""
        output = self.net.apply(params, reset(self.net, carry, timestep.first), timestep.observation)
        return Acted(self.actions.sample(self._masked(output, timestep.action_mask), key), output.carry)

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The most likely action."""
        output = self.net.apply(params, reset(self.net, carry, timestep.first), timestep.observation)
        return Acted(self.actions.mode(self._masked(output, timestep.action_mask)), output.carry)

    def bootstrap(self, params: Tree, carry: Tree, observation: Tree) -> Array:
        """The value of an observation, as the network sees it after what it remembers."""
        return self.net.apply(params, carry, observation).value

    def _masked(self, output: NetworkOutput, mask: Array | None) -> jax.Array:
        return output.logits if mask is None else self.actions.mask(output.logits, mask)

    # ---- learning: one update for each batch -----------------------------------------------------------------------

    def grad(self, params: Tree, batch: Unroll) -> tuple[Tree, Metrics]:
        """Gradients of the loss on one ``[T, B]`` batch, in the structure of ``params``, and metrics."""
        gradients, metrics = jax.grad(self.loss, has_aux=True)(params, batch)
        return gradients, metrics

    def apply(self, state: TrainState, gradients: Tree) -> TrainState:
        """One step of the optimiser. ``gradients`` has the structure of the params."""
        changes, optimizer = self.rule.update(gradients, state.optimizer, state.params)
        return TrainState(optax.apply_updates(state.params, changes), optimizer, state.step + 1, state.key)

    def loss(self, params: Tree, batch: Unroll) -> tuple[jax.Array, Metrics]:
        """The policy's loss, the value's error and the entropy on one batch, means over its steps: (loss, metrics)."""
        output = apply_unroll(self.net, params, batch.carry, batch.observation, batch.first)
        logits = self._masked(output, batch.action_mask)
        log_prob = self.actions.log_prob(logits, batch.action)
        advantage, target = gae(
            reshaped(batch.reward, self.reward_scale, self.reward_clip),
            jax.lax.stop_gradient(output.value),
            batch.bootstrap,
            batch.terminated,
            batch.truncated,
            self.discount,
            self.trace_decay,
            batch.valid,
        )
        if self.normalise_advantages:
            advantage = masked.normalise(advantage, batch.valid)

        policy_loss = masked.mean(losses.policy_gradient(log_prob, advantage), batch.valid)
        value_loss = masked.mean(losses.value_loss(output.value, target), batch.valid)
        entropy = masked.mean(self.actions.entropy(logits), batch.valid)
        loss = policy_loss + self.value_cost * value_loss - self.entropy_cost * entropy
        return loss, {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
