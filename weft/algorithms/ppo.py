"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347), read top to bottom.

    act     sample an action, remember its log-probability and the value
    learn   advantages (GAE, arXiv 1506.02438; or V-trace, arXiv 1802.01561, for batches that older params made),
            then epochs of clipped updates over shuffled minibatches

The network and how it acts are in ``actor_critic.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.actor_critic import ActorCritic
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Box
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.nets import NetworkOutput, apply_batch, apply_sequence, apply_unroll
from weft.ops import losses, masked, statistics
from weft.ops.gae import gae
from weft.ops.optimizers import as_vector, bounded_optimizer
from weft.ops.recursion import revalued
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear
from weft.ops.shuffling import over_minibatches
from weft.ops.vtrace import vtrace


@dataclass(frozen=True)
class PPO(ActorCritic):
    """The hyper-parameters of learning; those of the network are ``ActorCritic``'s."""

    unroll: int = 128  # steps of each environment in a batch, T
    epochs: int = 4  # passes over each batch
    minibatches: int = 4  # slices of each pass; for a recurrent network, slices of environments
    learning_rate: float = 2.5e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    discount: float = 0.99
    trace_decay: float = 0.95  # GAE's lambda
    clip: float = 0.2  # of the probability ratio
    dual_clip: float | None = None  # bound for negative advantages (arXiv 1912.09729), e.g. 3
    value_clip: float | None = None  # how far a value may move from the old one; None: no limit
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    entropy_cost_end: float | None = None  # reached linearly at the run's end; None: constant
    max_gradient_norm: float = 0.5
    target_kl: float | None = None  # once the policy has moved this far, the batch's remaining updates are skipped
    normalise_advantages: bool = True  # in each minibatch
    normalise_observations: bool = False  # by running mean and deviation; only floats
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this; returns are reported without
    normalise_rewards: bool = False  # by the running deviation of the discounted return
    normalise_values: bool = False  # the network's values are of targets normalised by running mean and deviation
    vtrace: bool = False  # V-trace instead of GAE: for batches that older params made

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """Adam for learn call ``step``.

        Its rate depends on the learn call, not on the number of updates, so it also falls where the KL stop skips some.
        """
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer("adam", rate, self.max_gradient_norm)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        what, size = "environments", self.spec.envs
        if not self.net.recurrent:
            what, size = "steps (unroll × environments, times the agents of a group)", self.spec.envs * self.unroll
        if size % self.minibatches:
            raise ConfigError(
                f"PPO cuts a batch of {size} {what} into {self.minibatches} minibatches, which leaves a remainder. "
                f"Choose minibatches that divide {size}, or other sizes for unroll and envs."
            )

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params: the network's weights, and running statistics of observations and returns where used."""
        state = super().init(key)
        observations = statistics.init(self.spec.environment.observation) if self.normalise_observations else None
        returns = statistics.init(Box(())) if self.normalise_rewards else None
        values = statistics.init(Box(())) if self.normalise_values else None
        return state._replace(params=Params(state.params, observations, returns, values))

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def initial_carry(self) -> Carry:
        """The network's own carry, and the discounted return where rewards are normalised."""
        return Carry(self.net.carry, jnp.zeros(()) if self.normalise_rewards else None)

    def act(self, params: Params, carry: Carry, timestep: Timestep, key: jax.Array) -> Acted:
        """Sample an action; remember its log-probability and the value."""
        output = self.look(params, carry, timestep)
        action = self.actions.sample(output.logits, key)
        extras: dict[str, Array] = {"log_prob": self.actions.log_prob(output.logits, action), "value": output.value}
        if carry.discounted_return is not None:
            extras["discounted_return"] = self._discounted(carry.discounted_return, timestep)
        return Acted(action, output.carry, extras)

    def look(self, params: Params, carry: Carry, timestep: Timestep) -> NetworkOutput:
        """As ``ActorCritic.look``, at the normalised observation; the next carry has the discounted return as well."""
        seen = timestep._replace(observation=self._normalised(params, timestep.observation))
        output = super().look(params.network, carry.network, seen)
        output = output._replace(value=self._value(params, output.value))
        if carry.discounted_return is None:
            return output._replace(carry=Carry(output.carry, None))
        discounted = jnp.where(timestep.first, 0.0, self._discounted(carry.discounted_return, timestep))
        return output._replace(carry=Carry(output.carry, discounted))

    def bootstrap(self, params: Params, carry: Carry, observation: Tree) -> Array:
        """The value of an observation; ``carry`` is the one after the step before it."""
        value = super().bootstrap(params.network, carry.network, self._normalised(params, observation))
        return self._value(params, jnp.asarray(value))

    def _discounted(self, before: Array, timestep: Timestep) -> Array:
        """The discounted return up to and including the reward that ``timestep`` brings."""
        return self.discount * before + self._reward(timestep.reward)

    def _reward(self, reward: Array) -> Array:
        """A reward as the learner takes it."""
        if self.reward_scale == 1.0 and self.reward_clip is None:
            return reward
        return reshaped(reward, self.reward_scale, self.reward_clip)

    def _value(self, params: Params, value: jax.Array) -> jax.Array:
        """A value of the network's in the units of returns."""
        return value if params.values is None else statistics.restore(params.values, value)

    def _normalised(self, params: Params, observation: Tree) -> Tree:
        if params.observations is None:
            return observation
        return statistics.normalise(params.observations, observation)

    # ---- learning: one batch ---------------------------------------------------------------------------------------

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """Epochs of minibatch updates on one ``[T, B]`` batch."""
        params, samples = self._prepare(state.params, batch)
        rule = self.rule(state.step)
        entropy_cost = linear(self.entropy_cost, self.entropy_cost_end, self.spec.learn_steps)(state.step)
        names: list[str] = []  # of what the loss measures; known once it is traced
        weights, network = as_vector(params.network)  # from update to update: few operations each

        def loss(weights: Tree, minibatch: Samples) -> tuple[jax.Array, Metrics]:
            return self.loss(network(weights), minibatch, entropy_cost)

        def update(carry: Update, minibatch: Samples) -> tuple[Update, jax.Array]:
            gradient, metrics = jax.grad(loss, has_aux=True)(carry.weights, minibatch)
            gradient, metrics = mean_over_replicas((gradient, metrics))
            change, optimizer = rule.update(gradient, carry.optimizer, carry.weights)
            new = Update(optax.apply_updates(carry.weights, change), optimizer, carry.moved)
            names[:] = metrics
            if self.target_kl is not None:  # once it has moved too far, the batch changes nothing more
                moved = carry.moved | (metrics["approx_kl"] > self.target_kl)
                new = jax.tree.map(lambda old, now: jnp.where(moved, old, now), carry, new)._replace(moved=moved)
            return new, jnp.stack([as_metric(name, metrics[name]) for name in names])  # one write in each update

        def epoch(carry: Update, key: jax.Array) -> tuple[Update, jax.Array]:
            return over_minibatches(update, carry, samples, key, self.minibatches)

        start = Update(weights, state.optimizer, jnp.zeros((), jnp.bool_))
        keys = jax.random.split(jax.random.fold_in(state.key, state.step), self.epochs)
        end, metrics = jax.lax.scan(epoch, start, keys)
        new = TrainState(params._replace(network=network(end.weights)), end.optimizer, state.step + 1, state.key)
        return new, dict(zip(names, metrics.mean((0, 1)), strict=True))

    def _prepare(self, params: Params, batch: Unroll) -> tuple[Params, Samples]:
        """Params with updated statistics, and the samples that every epoch goes over.

        The policy saw observations normalised by the old statistics, so the samples are normalised by them too.
        """
        before, observation, reward = params, self._normalised(params, batch.observation), self._reward(batch.reward)
        if params.observations is not None:
            new = statistics.update(params.observations, batch.observation, batch.valid, mean_over_replicas)
            params = params._replace(observations=new)
        if params.returns is not None:
            returns = statistics.update(params.returns, self._returns(batch), batch.valid, mean_over_replicas)
            params = params._replace(returns=returns)
            reward = statistics.normalise(returns, reward, clip=None, centre=False)
        log_prob, value = batch.extras["log_prob"], batch.extras["value"]
        ends, decay = (batch.terminated, batch.truncated), (self.discount, self.trace_decay)
        if self.vtrace:
            log_ratio, value, bootstrap = self._revalue(before, batch, observation)
            arguments = (reward, value, bootstrap, *ends, log_ratio, *decay)
            target, advantage = vtrace(*arguments, valid=batch.valid, weigh=False)  # the surrogate weighs by the ratio
        else:
            advantage, target = gae(reward, value, batch.bootstrap, *ends, *decay, batch.valid)
        old_value = None if self.value_clip is None else value
        if params.values is not None:
            values = statistics.update(params.values, target, batch.valid, mean_over_replicas)
            params = params._replace(values=values)
            target = statistics.normalise(values, target, clip=None)
            old_value = None if old_value is None else statistics.normalise(values, old_value, clip=None)
        steps = Steps(observation, batch.action, log_prob, old_value, advantage, target, batch.action_mask, batch.valid)
        if self.net.recurrent:  # whole sequences, environment first
            steps, first = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (steps, batch.first))
            return params, Samples(steps, first, batch.carry.network)
        return params, Samples(jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), steps), None, ())

    def _returns(self, batch: Unroll) -> Array:
        """``[T, B]`` the discounted return up to and including each step's reward, which act sees a step later."""

        def step(before: jax.Array, now: tuple[Array, Array, Array]) -> tuple[jax.Array, jax.Array]:
            reward, ended, valid = now
            reached = jnp.where(valid, self.discount * before + reward, before)
            return jnp.where(ended, 0.0, reached), reached

        ended = batch.terminated | batch.truncated
        valid = jnp.ones_like(ended) if batch.valid is None else batch.valid
        start = jnp.where(batch.first[0], 0.0, batch.extras["discounted_return"][0])
        _, reached = jax.lax.scan(step, start, (self._reward(batch.reward), ended, valid))
        return reached

    def _revalue(self, params: Params, batch: Unroll, observation: Tree) -> tuple[Array, Array, Array]:
        """Log-ratios of each action's probability now and when it was taken, values, and bootstraps: ``[T, B]`` each.

        All are under the params with which this learn call begins, except the values of truncated episodes' final
        observations: an unroll has only act's values of those.
        """
        output = apply_unroll(self.net, params.network, batch.carry.network, observation, batch.first)
        log_prob = self.actions.log_prob(self.allowed(output.logits, batch.action_mask), batch.action)
        carry = batch.carry._replace(network=output.carry)
        after = jax.vmap(self.bootstrap, (None, 0, 0))(params, carry, batch.last_observation)
        value = self._value(params, output.value)
        return log_prob - batch.extras["log_prob"], value, revalued(batch.bootstrap, batch.truncated, after)

    def loss(self, network: Tree, samples: Samples, entropy_cost: Array) -> tuple[jax.Array, Metrics]:
        """The clipped objective, the value's loss and the entropy on one minibatch: (loss, metrics).

        Metrics are scalars by name; what an override adds is logged with the others. ``target_kl`` needs ``approx_kl``.
        """
        steps = samples.steps
        if self.net.recurrent:
            output = jax.vmap(lambda *x: apply_sequence(self.net, network, *x))(
                samples.carry, steps.observation, samples.first
            )
        else:
            output = apply_batch(self.net, network, steps.observation)
        logits = self.allowed(output.logits, steps.action_mask)
        log_ratio = self.actions.log_prob(logits, steps.action) - steps.log_prob
        advantage = steps.advantage
        if self.normalise_advantages:
            advantage = masked.normalise(advantage, steps.valid)
        surrogate = losses.clipped_surrogate(log_ratio, advantage, self.clip, self.dual_clip)
        error = losses.value_loss(output.value, steps.target, steps.value, self.value_clip)

        policy_loss = masked.mean(surrogate, steps.valid)
        value_loss = masked.mean(error, steps.valid)
        entropy = masked.mean(self.actions.entropy(logits), steps.valid)
        loss = policy_loss + self.value_cost * value_loss - entropy_cost * entropy
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": masked.mean(losses.approx_kl(log_ratio), steps.valid),
        }


class Params(NamedTuple):
    """What act needs: the network's weights, and the statistics that it normalises with."""

    network: Tree
    observations: statistics.RunningStatistics | None
    returns: statistics.RunningStatistics | None
    values: statistics.RunningStatistics | None = None


class Carry(NamedTuple):
    """What act remembers of one environment from step to step."""

    network: Tree  # recurrent state
    discounted_return: Array | None  # []; where rewards are normalised


class Steps(NamedTuple):
    """What the loss needs of each step: ``[N, ...]`` steps, or ``[B, T, ...]`` sequences for a recurrent network."""

    observation: Tree
    action: Tree
    log_prob: Array
    value: Array | None  # where values are clipped
    advantage: Array
    target: Array
    action_mask: Array | None
    valid: Array | None


class Samples(NamedTuple):
    """What each epoch shuffles and slices along the first axis."""

    steps: Steps
    first: Array | None  # [B, T] for a recurrent network
    carry: Tree  # [B, ...] its state before the first step


class Update(NamedTuple):
    """What one update passes to the next."""

    weights: Tree  # the network's; of a small one as one vector
    optimizer: Tree
    moved: Array  # [] bool: the policy has moved further than target_kl


def as_metric(name: str, value: Array) -> jax.Array:
    """``value`` as a float32 scalar. Raises ConfigError where it is no scalar."""
    if jnp.shape(value):
        raise ConfigError(f"loss: metric {name!r} has the shape {list(jnp.shape(value))}; a metric is one number")
    return jnp.asarray(value, jnp.float32)
