"""SAC (Haarnoja et al., arXiv 1812.05905), read top to bottom: the policy that is as random as rewards allow.

act     an action drawn from a Gaussian squashed into the bounds; anything at all until learning begins
replay  keeps unrolls; draws batches of steps with their n-step returns, uniformly or by priority
learn   critics, towards reward + discount x (the lowest target critic's value - temperature x log-probability) of an
            action that the policy draws in what followed
        policy, towards high values and a high entropy
        temperature, the price of entropy, so that the entropy becomes what it should be
        target critics, a small part of the way to the critics

With ``blocks``, ``normalise_observations`` and ``weight_decay`` it is SAC as SimBa has it (arXiv 2410.09754), whose
critics bear many learn calls for each step. Networks and fields are in ``continuous_control.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.continuous_control import ContinuousControl, Policy, Trained, nearer, stepped
from weft.core.replicas import mean_over_replicas
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Transitions, Tree
from weft.ops import masked
from weft.ops.continuous import SquashedGaussian
from weft.ops.optimizers import bounded_optimizer


class Learner(NamedTuple):
    """What learn remembers besides the policy."""

    policy: Tree  # state of its optimiser
    critics: Trained
    target: Tree  # weights of the target critics
    log_temperature: Trained  # its weights are a scalar


@dataclass(frozen=True)
class SAC(ContinuousControl):
    """The hyper-parameters of learning; those of networks, optimisers and replay are ``ContinuousControl``'s."""

    temperature: float = 1.0  # what a nat of entropy is worth in rewards; when learning begins, where it adapts
    adapt_temperature: bool = True
    target_entropy: float | None = None  # what it adapts to, in nats; None: minus the number of an action's numbers

    @property
    def actions(self) -> SquashedGaussian:
        """The distribution that actions are drawn from."""
        return SquashedGaussian(self.spec.environment.action.shape)

    @property
    def num_params(self) -> int:
        """A mean and a log-deviation for each number of an action."""
        return self.actions.num_params

    @property
    def aimed_entropy(self) -> float:
        """The entropy that the temperature adapts to."""
        return -float(self.actions.num_params // 2) if self.target_entropy is None else self.target_entropy

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, and target critics that are the critics."""
        net_key, learn_key = jax.random.split(key)
        policy, optimizer, critics = self.fresh(net_key)
        log = jnp.float32(math.log(self.temperature))
        temperature = Trained(log, self._temperature_rule.init(log))
        learner = Learner(optimizer, critics, jax.tree.map(jnp.copy, critics.weights), temperature)
        return TrainState(policy, learner, jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def act_at(self, params: Policy, carry: Tree, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """An action that the policy draws."""
        ours, anything = jax.random.split(key)
        action = self.actions.sample(self.output(params, timestep.observation), ours)
        return Acted(self.random_at_first(action, anything, step), carry)

    def greedy(self, params: Policy, carry: Tree, timestep: Timestep) -> Acted:
        """The middle of what the policy draws."""
        return Acted(self.actions.mode(self.output(params, timestep.observation)), carry)

    # ---- learning: one step of each optimiser for each batch -------------------------------------------------------

    def learn_and_tell(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics, Tree]:
        """One learn call; and the critics' errors of the batch, by which a prioritised replay draws."""
        learner: Learner = state.optimizer
        policy, batch = self.seen(state.params, batch)
        now, later = jax.random.split(jax.random.fold_in(state.key, state.step))
        temperature = jnp.exp(learner.log_temperature.weights)

        aim = self.aim(policy.network, learner.target, temperature, batch, later)
        critics, (critic_loss, (value, error)) = self.train_critics(learner.critics, batch, aim, state.step)

        loss = jax.value_and_grad(self.policy_loss, has_aux=True)
        (policy_loss, entropy), gradient = loss(policy.network, critics.weights, temperature, batch, now)
        gradient, entropy = mean_over_replicas((gradient, entropy))
        trained = stepped(self.rule(state.step), Trained(policy.network, learner.policy), gradient)

        log_temperature = learner.log_temperature
        if self.adapt_temperature:
            slope = jax.grad(self.temperature_loss)(log_temperature.weights, entropy)
            log_temperature = stepped(self._temperature_rule, log_temperature, slope)
        target = nearer(learner.target, critics.weights, self.target_rate)
        metrics = {
            "loss": critic_loss + policy_loss,
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": value,
            "entropy": entropy,
            "temperature": temperature,
        }
        learner = Learner(trained.optimizer, critics, target, log_temperature)
        new = TrainState(policy._replace(network=trained.weights), learner, state.step + 1, state.key)
        return new, mean_over_replicas(metrics), self.tell(batch, error)

    def aim(self, network: Tree, target: Tree, temperature: Array, batch: Transitions, key: jax.Array) -> Array:
        """``[N]`` what the critics are moved towards: the n-step return, and the soft value of what followed."""
        action, log_prob = self._drawn(network, batch.following, key)
        value = self.critic_net.apply(target, batch.following, action).min(0) - temperature * log_prob
        return batch.reward + batch.discount * value

    def policy_loss(
        self, network: Tree, critics: Tree, temperature: Array, batch: Transitions, key: jax.Array
    ) -> tuple[Array, Array]:
        """Minus the soft value of what the policy draws, and the entropy; means over the batch."""
        action, log_prob = self._drawn(network, batch.observation, key)
        value, valid = self.critic_net.apply(critics, batch.observation, action).min(0), batch.weight > 0
        return masked.mean(temperature * log_prob - value, valid), -masked.mean(log_prob, valid)

    def temperature_loss(self, log_temperature: Array, entropy: Array) -> Array:
        """Falls with the temperature as long as there is more entropy than is aimed at, and rises where there is less.

        By the logarithm, whose steps do not depend on how far the temperature has fallen.
        """
        return log_temperature * (entropy - self.aimed_entropy)

    def _drawn(self, network: Tree, observation: Tree, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``[N]`` actions that the policy draws, and their log-probabilities."""
        return self.actions.sample_and_log_prob(self.net.apply(network, (), observation).logits, key)

    @property
    def _temperature_rule(self) -> optax.GradientTransformation:
        rate = self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate
        return bounded_optimizer(self.optimizer, rate, None)
