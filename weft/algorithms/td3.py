"""TD3 (Fujimoto et al., arXiv 1802.09477), read top to bottom; DDPG (arXiv 1509.02971) is a special case of its fields.

act     the policy's action with noise; anything at all until learning begins
replay  keeps unrolls; draws batches of steps with their n-step returns, uniformly or by priority
learn   critics, towards reward + discount x the lowest target critic's value of what followed, with the target
            policy's action there and some noise, so that a single high value does not count
        policy, towards high values of the first critic; it and the target networks only in every second learn call

DDPG: ``critics=1, policy_delay=1, smoothing=0``. Networks and fields are in ``continuous_control.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft.algorithms.continuous_control import ContinuousControl, Policy, Trained, nearer, stepped
from weft.core.replicas import mean_over_replicas
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Transitions, Tree
from weft.ops import masked


class Learner(NamedTuple):
    """What learn remembers besides the policy."""

    policy: Tree  # state of its optimiser
    critics: Trained
    target: Tree  # weights of the target critics
    target_policy: Tree  # weights


@dataclass(frozen=True)
class TD3(ContinuousControl):
    """The hyper-parameters of learning; those of networks, optimisers and replay are ``ContinuousControl``'s.

    Noise is in units of actions that reach from -1 to 1.
    """

    noise: float = 0.1  # the deviation of what act adds to the policy's action
    smoothing: float = 0.2  # the deviation of what the target policy's action gets in learn; 0: nothing
    smoothing_clip: float = 0.5  # what it gets at most
    policy_delay: int = 2  # learn calls for each step of the policy and of the target networks

    @property
    def num_params(self) -> int:
        """The numbers of an action, before they are squashed."""
        return math.prod(self.spec.environment.action.shape)

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params; the target networks are the networks."""
        net_key, learn_key = jax.random.split(key)
        policy, optimizer, critics = self.fresh(net_key)
        targets = jax.tree.map(jnp.copy, (critics.weights, policy.network))
        return TrainState(policy, Learner(optimizer, critics, *targets), jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def act_at(self, params: Policy, carry: Tree, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """The policy's action with noise, within the bounds."""
        ours, anything = jax.random.split(key)
        action = self.greedy(params, carry, timestep).action
        noise = self.noise * jax.random.normal(ours, action.shape, action.dtype)
        return Acted(self.random_at_first(jnp.clip(action + noise, -1.0, 1.0), anything, step), carry)

    def greedy(self, params: Policy, carry: Tree, timestep: Timestep) -> Acted:
        """The policy's action."""
        return Acted(self.chosen(params.network, self.normalised(params, timestep.observation)), carry)

    def chosen(self, network: Tree, observation: Tree) -> jax.Array:
        """The actions of a policy for normalised observations, ``[..., *shape]``."""
        output = jnp.tanh(self.net.apply(network, (), observation).logits)
        return output.reshape((*output.shape[:-1], *self.spec.environment.action.shape))

    # ---- learning: one step of the critics for each batch, and one of the policy for some --------------------------

    def learn_and_tell(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics, Tree]:
        """One learn call; and the critics' errors of the batch, by which a prioritised replay draws."""
        learner: Learner = state.optimizer
        policy, batch = self.seen(state.params, batch)
        aim = self.aim(learner, batch, jax.random.fold_in(state.key, state.step))
        critics, (critic_loss, (value, error)) = self.train_critics(learner.critics, batch, aim, state.step)

        def moved() -> tuple[Trained, Tree, Tree]:
            gradient = mean_over_replicas(jax.grad(self.policy_loss)(policy.network, critics.weights, batch))
            trained = stepped(self.rule(state.step), Trained(policy.network, learner.policy), gradient)
            target = nearer(learner.target, critics.weights, self.target_rate)
            return trained, target, nearer(learner.target_policy, trained.weights, self.target_rate)

        def stays() -> tuple[Trained, Tree, Tree]:
            return Trained(policy.network, learner.policy), learner.target, learner.target_policy

        if self.policy_delay == 1:
            trained, target, target_policy = moved()
        else:
            trained, target, target_policy = jax.lax.cond((state.step + 1) % self.policy_delay == 0, moved, stays)
        learner = Learner(trained.optimizer, critics, target, target_policy)
        new = TrainState(policy._replace(network=trained.weights), learner, state.step + 1, state.key)
        return new, mean_over_replicas({"loss": critic_loss, "value": value}), self.tell(batch, error)

    def aim(self, learner: Learner, batch: Transitions, key: jax.Array) -> Array:
        """``[N]`` what the critics are moved towards: the n-step return, and the value of what followed."""
        action = self.chosen(learner.target_policy, batch.following)
        if self.smoothing:
            noise = self.smoothing * jax.random.normal(key, action.shape, action.dtype)
            action = jnp.clip(action + jnp.clip(noise, -self.smoothing_clip, self.smoothing_clip), -1.0, 1.0)
        return batch.reward + batch.discount * self.critic_net.apply(learner.target, batch.following, action).min(0)

    def policy_loss(self, network: Tree, critics: Tree, batch: Transitions) -> Array:
        """Minus the first critic's value of what the policy does, the mean over the batch."""
        action = self.chosen(network, batch.observation)
        value = self.critic_net.apply(critics[:1], batch.observation, action)[0]
        return -masked.mean(value, batch.weight > 0)
