"""PQN (Gallici et al., arXiv 2407.04811), read top to bottom: Q-learning without a replay and without a target network.

act     the action of the highest value, or any action with probability epsilon, which falls over the run
learn   Q(lambda) returns of the unroll, then epochs of updates towards them over shuffled minibatches

What keeps it stable is the network, whose layers are normalised, and that many environments are stepped side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.epsilon_greedy import EpsilonGreedy, allowed
from weft.algorithms.ranges import check_ranges
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import describe
from weft.core.types import Array, Metrics, TrainState, Tree, Unroll
from weft.nets import Network, apply_batch, apply_unroll, as_network, check_network, q_network
from weft.ops import losses, masked
from weft.ops.choosing import of_chosen
from weft.ops.gae import gae
from weft.ops.optimizers import as_vector, bounded_optimizer, summed_apart
from weft.ops.recursion import revalued
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear
from weft.ops.shuffling import over_minibatches


class Steps(NamedTuple):
    """What the loss needs of each step, ``[N, ...]``."""

    observation: Tree
    action: Array
    target: Array
    valid: Array | None


@dataclass(frozen=True)
class PQN(EpsilonGreedy):
    """The hyper-parameters of learning; those of exploration are ``EpsilonGreedy``'s."""

    unroll: int = 32  # steps of each environment in a batch, T
    hidden: tuple[int, ...] = (128, 128)  # layers; images go through a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    layer_norm: bool = True  # normalise each layer; of images, what the CNN gives
    network: Any = None  # your own: weft.Network or a pair (init, apply); its logits are the actions' values
    epochs: int = 4  # passes over each batch
    minibatches: int = 4  # slices of each pass
    learning_rate: float = 5e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "radam", "rmsprop"] = "radam"
    discount: float = 0.99
    trace_decay: float = 0.65  # lambda: 0 trusts the value of what follows at once, 1 only at the unroll's end
    max_gradient_norm: float = 10.0
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    @property
    def net(self) -> Network:
        """The values of all actions, as its logits."""
        if self.network is not None:
            return as_network(self.network)
        return q_network(
            self.spec.environment.observation,
            self.choices,
            hidden=self.hidden,
            activation=self.activation,
            layer_norm=self.layer_norm,
        )

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        env, size = self.spec.environment, self.spec.envs * self.unroll
        if size % self.minibatches:
            raise ConfigError(
                f"PQN cuts a batch of {size} steps (unroll × environments) into {self.minibatches} minibatches, which "
                f"leaves a remainder. Choose minibatches that divide {size}, or other sizes for unroll and envs."
            )
        if self.network is not None:
            check_network(type(self).__name__, self.net, env.observation, self.choices, describe(env.action))

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        return TrainState(params, self.rule(0).init(params), jnp.zeros((), jnp.int32), learn_key)

    def values(self, params: Tree, observation: Tree) -> jax.Array:
        """``[N, actions]`` of ``[N, ...]`` observations."""
        return apply_batch(self.net, params, observation).logits

    def bootstrap(self, params: Tree, carry: Tree, observation: Tree) -> jax.Array:
        """The highest value of an observation."""
        return self.values_of_one(params, observation).max(-1)

    # ---- learning: one batch ---------------------------------------------------------------------------------------

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """Epochs of minibatch updates on one ``[T, B]`` batch."""
        rule, target = self.rule(state.step), self.aim(state.params, batch)
        whole = Steps(batch.observation, batch.action, target, batch.valid)
        steps = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), whole)
        weights, network = as_vector(state.params)  # from update to update: few operations each

        def update(carry: tuple[Tree, Tree], minibatch: Steps) -> tuple[tuple[Tree, Tree], Metrics]:
            weights, optimizer = carry
            found = jax.grad(self.loss, has_aux=True)(network(weights), minibatch)
            gradient, metrics = mean_over_replicas(found)
            changes, optimizer = rule.update(as_vector(summed_apart(gradient))[0], optimizer, weights)
            return (optax.apply_updates(weights, changes), optimizer), metrics

        def epoch(carry: tuple[Tree, Tree], key: jax.Array) -> tuple[tuple[Tree, Tree], Metrics]:
            return over_minibatches(update, carry, steps, key, self.minibatches)

        keys = jax.random.split(jax.random.fold_in(state.key, state.step), self.epochs)
        (weights, optimizer), metrics = jax.lax.scan(epoch, (weights, state.optimizer), keys)
        new = TrainState(network(weights), optimizer, state.step + 1, state.key)
        return new, {name: found.mean() for name, found in metrics.items()}

    def aim(self, params: Tree, batch: Unroll) -> jax.Array:
        """``[T, B]`` Q(lambda) returns: rewards, and after each of them the rest by the highest value, in parts.

            target[t] = reward[t] + discount x ((1 - lambda) x highest value[t + 1] + lambda x target[t + 1])

        within an episode; the highest value alone where the unroll ends or the episode was cut, and nothing after a
        termination. Values are those of the params with which this learn call begins, except those of cut episodes'
        final observations: an unroll has only act's values of those.
        """
        values = apply_unroll(self.net, params, (), batch.observation, batch.first).logits
        value = allowed(values, batch.action_mask).max(-1)
        after = self.values(params, batch.last_observation).max(-1)
        _, target = gae(
            reshaped(batch.reward, self.reward_scale, self.reward_clip),
            value,
            revalued(batch.bootstrap, batch.truncated, after),
            batch.terminated,
            batch.truncated,
            self.discount,
            self.trace_decay,
            batch.valid,
        )
        return target

    def loss(self, params: Tree, steps: Steps) -> tuple[jax.Array, Metrics]:
        """Half the squared error of the values of what was done; means over the minibatch."""
        values = self.values(params, steps.observation)
        value = of_chosen(values, steps.action)
        loss = masked.mean(losses.value_loss(value, steps.target), steps.valid)
        return loss, {"loss": loss, "value": masked.mean(value, steps.valid)}
