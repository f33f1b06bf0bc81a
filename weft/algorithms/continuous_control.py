"""What off-policy algorithms for continuous actions share: a policy, critics with target networks, and their fields.

An algorithm derives from ``ContinuousControl`` and defines how it acts and ``learn_and_tell``. Only what act needs are
its params: the policy. The critics stay with learn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.replayed import Replayed
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Box, describe
from weft.core.types import Array, Transitions, Tree
from weft.nets import Critics, Network, critics_network, policy_network
from weft.ops import masked, statistics
from weft.ops.optimizers import bounded_optimizer
from weft.ops.schedules import linear


class Policy(NamedTuple):
    """What act needs: the policy's weights, and the statistics that observations are normalised by."""

    network: Tree
    observations: statistics.RunningStatistics | None


class Trained(NamedTuple):
    """Weights, and the state of their optimiser."""

    weights: Tree
    optimizer: Tree


@dataclass(frozen=True)
class ContinuousControl(Replayed):
    """The fields of networks and optimisers; those of the replay are ``Replayed``'s."""

    unroll: int = 8  # steps of each environment that are stored at a time, T
    capacity: int = 1_000_000  # steps that are kept
    batch: int = 256  # steps in a batch
    samples_per_insert: float = 256.0  # how often a step is drawn on average: 256 is one learn call for each step
    learning_begins: int = 1_000  # steps that are kept before the first batch is drawn; their actions are random
    hidden: tuple[int, ...] = (256, 256)  # layers of each network; after a CNN where there are images
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    blocks: int = 0  # residual blocks of the width hidden[0] instead of those layers, as SimBa has them (2410.09754)
    normalise_observations: bool = False  # by running mean and deviation; only floats
    critics: int = 2  # the lowest of their values counts
    learning_rate: float = 3e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    critic_learning_rate: float | None = None  # None: the same
    optimizer: Literal["adam", "rmsprop"] = "adam"
    weight_decay: float = 0.0  # of all networks, as AdamW has it
    max_gradient_norm: float | None = None  # of policy and critics, each by itself; None: no bound
    target_rate: float = 0.005  # the part of the way that target networks go to their networks in each learn call

    @property
    def net(self) -> Network:
        """The policy; its logits are what ``num_params`` counts."""
        return policy_network(
            self.spec.environment.observation,
            self.num_params,
            hidden=self.hidden,
            activation=self.activation,
            blocks=self.blocks,
        )

    @property
    def critic_net(self) -> Critics:
        """The critics."""
        return critics_network(
            self.spec.environment.observation,
            self.spec.environment.action.shape,
            self.critics,
            hidden=self.hidden,
            activation=self.activation,
            blocks=self.blocks,
        )

    @property
    def num_params(self) -> int:
        """The size of the policy's output."""
        raise ConfigError(f"{type(self).__name__} must define num_params")

    def rule(self, step: Array | int, rate: float | None = None) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``; ``rate`` instead of ``learning_rate`` to begin with."""
        begin = self.learning_rate if rate is None else rate
        end = None if self.learning_rate_end is None else self.learning_rate_end * begin / self.learning_rate
        now: Any = linear(begin, end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, now, self.max_gradient_norm, self.weight_decay)

    def critic_rule(self, step: Array | int) -> optax.GradientTransformation:
        """The critics' optimiser for learn call ``step``."""
        return self.rule(step, self.critic_learning_rate)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        env, name = self.spec.environment, type(self).__name__
        if not isinstance(env.action, Box):
            raise ConfigError(
                f"{name} gives numbers within bounds, and the actions of environment {env.name!r} are "
                f"{describe(env.action)}. Use an environment with Box actions, or DQN for Discrete ones, or PPO, which "
                "takes any."
            )
        if not env.action.bounded.all():
            native: Any = env.native_action
            raise ConfigError(
                f"{name} needs actions with finite bounds, and those of environment {env.name!r} are "
                f"{describe(env.action)} with low {native.low} and high {native.high}. Wrap the environment so that "
                "its action space has bounds, or use PPO, which needs none."
            )
        super().check()

    # ---- parts of init, act and learn ------------------------------------------------------------------------------

    def fresh(self, key: jax.Array) -> tuple[Policy, Tree, Trained]:
        """A policy, the state of its optimiser, and critics."""
        policy_key, critic_key = jax.random.split(key)
        network, critics = self.net.init(policy_key), self.critic_net.init(critic_key)
        stats = statistics.init(self.spec.environment.observation) if self.normalise_observations else None
        policy = Policy(network, stats)
        return policy, self.rule(0).init(network), Trained(critics, self.critic_rule(0).init(critics))

    def output(self, policy: Policy, observation: Tree) -> jax.Array:
        """What the policy's network gives for an observation as the environment gave it: ``[num_params]``."""
        return self.net.apply(policy.network, (), self.normalised(policy, observation)).logits

    def normalised(self, policy: Policy, observation: Tree) -> Tree:
        """An observation as networks see it."""
        return observation if policy.observations is None else statistics.normalise(policy.observations, observation)

    def random_at_first(self, action: jax.Array, key: jax.Array, step: Array) -> jax.Array:
        """``action``, or anything within the bounds as long as nothing was learned."""
        anything = jax.random.uniform(key, action.shape, action.dtype, -1.0, 1.0)
        # Not step * envs: a trained policy is asked for the last step that 32 bits count.
        return jnp.where(
            step < math.ceil(self.learning_begins / (self.spec.envs * self.spec.replicas)), anything, action
        )

    def seen(self, policy: Policy, batch: Transitions) -> tuple[Policy, Transitions]:
        """The policy with statistics that have seen a batch, and the batch normalised by them."""
        if policy.observations is None:
            return policy, batch
        stats = statistics.update(policy.observations, batch.observation, batch.weight > 0, mean_over_replicas)
        policy = policy._replace(observations=stats)
        both = self.normalised(policy, batch.observation), self.normalised(policy, batch.following)
        return policy, batch._replace(observation=both[0], following=both[1])

    def critic_loss(self, critics: Tree, batch: Transitions, aim: Array) -> tuple[Array, tuple[Array, Array]]:
        """The squared errors of all critics, halved and added up; with their mean value and mean error, ``[N]``.

        ``aim`` (``[N]``) is what all of them are moved towards.
        """
        values = self.critic_net.apply(critics, batch.observation, batch.action)
        error, valid = values - aim, batch.weight > 0
        each = batch.weight * optax.losses.l2_loss(error).sum(0)
        return masked.mean(each, valid), (masked.mean(values.mean(0), valid), error.mean(0))

    def train_critics(self, critics: Trained, batch: Transitions, aim: Array, step: Array) -> tuple[Trained, Any]:
        """One step of the critics towards ``aim``, and (loss, (value, error)) before it."""
        aim = jax.lax.stop_gradient(aim)
        found, gradient = jax.value_and_grad(self.critic_loss, has_aux=True)(critics.weights, batch, aim)
        gradient = mean_over_replicas(gradient)
        return stepped(self.critic_rule(step), critics, gradient), found


def stepped(rule: optax.GradientTransformation, trained: Trained, gradient: Tree) -> Trained:
    """After one step of an optimiser."""
    changes, optimizer = rule.update(gradient, trained.optimizer, trained.weights)
    return Trained(optax.apply_updates(trained.weights, changes), optimizer)


def nearer(target: Tree, weights: Tree, rate: float) -> Tree:
    """A target network after it went the part ``rate`` of the way to ``weights`` (Polyak averaging)."""
    return optax.incremental_update(weights, target, rate)
