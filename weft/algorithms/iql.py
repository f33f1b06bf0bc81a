"""IQL, implicit Q-learning (Kostrikov et al., arXiv 2110.06169), read top to bottom: better than its data, offline.

act     the likeliest action; only to show how good the policy is
replay  the data set, from which batches of steps are drawn
learn   value, towards an upper expectile of what the target critics give the recorded actions: what the best of them
            are worth, without asking for an action that is not in the data
        critics, towards reward + discount x value of what followed
        policy, as behaviour cloning, where each step counts more the better its action was than that value

Policy and value are one network, in towers of their own but for images. The network, the data and how it acts are in
``offline.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.continuous_control import Trained, nearer, stepped
from weft.algorithms.offline import Offline, Params, steps_of
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Box, Discrete, MultiDiscrete
from weft.core.types import Array, Metrics, TrainState, Transitions, Tree
from weft.nets import Critics, apply_batch, critics_network
from weft.replay import FixedReplay


class Learner(NamedTuple):
    """What learn remembers besides policy and value."""

    optimizer: Tree  # state of the network's
    critics: Trained
    target: Tree  # weights of the target critics


@dataclass(frozen=True)
class IQL(Offline):
    """The hyper-parameters of learning; those of the data and the optimiser are ``Offline``'s."""

    expectile: float = 0.7  # of the critics' values: 0.5 is their mean, near 1 the best action that the data have
    temperature: float = 0.33  # an action that is better by this counts e times as much
    weight_clip: float = 100.0  # and never more than this
    critics: int = 2  # the lowest of their values counts
    target_rate: float = 0.005  # the part of the way that target critics go to the critics in each learn call
    discount: float = 0.99
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    @property
    def replay(self) -> FixedReplay:
        """The data as a store, with what followed each step."""
        return FixedReplay(
            steps_of(self.dataset), self.batch, self.updates, self.discount, self.reward_scale, self.reward_clip
        )

    @property
    def critic_net(self) -> Critics:
        """The critics; numbered actions come to them as ones and zeros."""
        shown = jax.eval_shape(lambda: self.shown(jnp.zeros((1, *self._action.shape), self._action.dtype)))
        return critics_network(
            self.spec.environment.observation,
            shown.shape[1:],
            self.critics,
            hidden=self.hidden,
            activation=self.activation,
        )

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, and target critics that are the critics."""
        state = super().init(key)
        critics = self.critic_net.init(jax.random.fold_in(key, 1))
        trained = Trained(critics, self.rule(0).init(critics))
        return state._replace(optimizer=Learner(state.optimizer, trained, jax.tree.map(jnp.copy, critics)))

    # ---- learning: one step of each optimiser for each batch --------------------------------------------------------

    def learn(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics]:
        """One learn call."""
        learner: Learner = state.optimizer
        params, batch = self.seen(state.params, batch)
        action, rule = self.shown(batch.action), self.rule(state.step)

        worth = self.critic_net.apply(learner.target, batch.observation, action).min(0)
        gradient, metrics = jax.grad(self.loss, has_aux=True)(params.network, batch, worth)
        gradient, metrics = mean_over_replicas((gradient, metrics))
        network = stepped(rule, Trained(params.network, learner.optimizer), gradient)

        following = apply_batch(self.net, network.weights, batch.following).value
        aim = jax.lax.stop_gradient(batch.reward + batch.discount * following)
        critic_loss, gradient = jax.value_and_grad(self.critic_loss)(learner.critics.weights, batch, action, aim)
        critic_loss, gradient = mean_over_replicas((critic_loss, gradient))
        critics = stepped(rule, learner.critics, gradient)
        target = nearer(learner.target, critics.weights, self.target_rate)

        new = Params(network.weights, params.observations), Learner(network.optimizer, critics, target)
        metrics = {**metrics, "critic_loss": critic_loss, "loss": metrics["loss"] + critic_loss}
        return TrainState(*new, state.step + 1, state.key), metrics

    def loss(self, network: Tree, batch: Transitions, worth: Array) -> tuple[jax.Array, Metrics]:
        """The losses of policy and value together; ``worth`` (``[N]``) is what the target critics give the actions."""
        log_prob, entropy, value = self.log_prob_and_value(network, batch)
        better = jax.lax.stop_gradient(worth - value)
        weight = jnp.minimum(jnp.exp(better / self.temperature), self.weight_clip)
        policy_loss = -(weight * log_prob).mean()
        error = jax.lax.stop_gradient(worth) - value
        value_loss = (jnp.where(error > 0, self.expectile, 1.0 - self.expectile) * jnp.square(error)).mean()
        loss = policy_loss + value_loss
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "value": value.mean()}
        return loss, {"loss": loss, **metrics, "weight": weight.mean(), "entropy": entropy.mean()}

    def critic_loss(self, critics: Tree, batch: Transitions, action: Array, aim: Array) -> jax.Array:
        """The squared errors of all critics, halved and added up; the mean over the batch."""
        values = self.critic_net.apply(critics, batch.observation, action)
        return jnp.asarray(optax.losses.l2_loss(values - aim).sum(0).mean())

    def shown(self, action: Array) -> jax.Array:
        """``[N, ...]`` actions as critics see them: of numbered ones a one for each choice, all else zeros."""
        space = self._action
        if isinstance(space, Box):
            return jnp.asarray(action)
        if isinstance(space, Discrete):
            return jax.nn.one_hot(action, space.n)
        if isinstance(space, MultiDiscrete):
            parts = [jax.nn.one_hot(action[..., k], n) for k, n in enumerate(space.nvec)]
            return jnp.concatenate(parts, axis=-1)
        return jnp.asarray(action, jnp.float32)

    @property
    def _action(self) -> Box | Discrete | MultiDiscrete | Tree:
        return self.spec.environment.action
