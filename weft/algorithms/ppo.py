"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347), read top to bottom.

    act     sample an action, remember its log-probability and the value
    learn   advantages (GAE, arXiv 1506.02438; or V-trace, arXiv 1802.01561, for batches that older params made),
            then epochs of clipped updates over shuffled minibatches

One file for discrete, multi-discrete and continuous actions, feed-forward and recurrent networks, vectors and images:
the distribution and the network are chosen from the environment's spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.ranges import check_ranges
from weft.core.errors import ConfigError, UnknownName
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Box, describe
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.algorithm import Algorithm
from weft.nets import (
    ACTIVATIONS,
    Network,
    NetworkOutput,
    actor_critic,
    apply_sequence,
    apply_unroll,
    as_network,
    check_network,
    reset_carry,
)
from weft.ops import distributions, losses, masked, statistics
from weft.ops.gae import gae
from weft.ops.recursion import revalued
from weft.ops.schedules import linear
from weft.ops.shuffling import random_order
from weft.ops.vtrace import vtrace

METRICS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl")


@dataclass(frozen=True)
class PPO(Algorithm):
    """The hyper-parameters: the one place where their defaults live."""

    unroll: int = 128  # steps of each environment in a batch, T
    epochs: int = 4  # passes over each batch
    minibatches: int = 4  # slices of each pass; a recurrent network is sliced by environments
    learning_rate: float = 2.5e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    discount: float = 0.99
    trace_decay: float = 0.95  # GAE's lambda
    clip: float = 0.2  # of the probability ratio
    dual_clip: float | None = None  # bound for negative advantages (arXiv 1912.09729), e.g. 3
    value_clip: float | None = None  # how far a value may move from the old one; None: as far as it likes
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    entropy_cost_end: float | None = None  # reached linearly at the run's end; None: constant
    max_gradient_norm: float = 0.5
    target_kl: float | None = None  # the rest of a batch's updates are skipped once the policy has moved this far
    normalise_advantages: bool = True  # in each minibatch
    normalise_observations: bool = False  # by running mean and deviation, where they are floats
    normalise_rewards: bool = False  # by the running deviation of the discounted return
    hidden: tuple[int, ...] = (64, 64)  # of each tower; recurrent: the first, before the cell; images: a CNN
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"  # of those layers; a CNN has relu
    recurrent: Literal["", "gru", "lstm"] = ""
    recurrent_size: int = 64
    vtrace: bool = False  # V-trace instead of GAE: for batches that older params made
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

    def optimizer(self, step: Array | int) -> optax.GradientTransformation:
        """For learn call ``step``: Adam behind a bound on the gradient's norm.

        On one long vector: fewer operations than leaf by leaf. The rate is the learn call's, not the updates' that its
        state counts: it falls also where the KL stop leaves some out.
        """
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        adam = optax.adam(lambda updates: rate, eps=1e-5)
        return optax.flatten(optax.chain(optax.clip_by_global_norm(self.max_gradient_norm), adam))

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        if self.activation not in ACTIVATIONS:
            raise UnknownName("activation", self.activation, ACTIVATIONS)
        if self.network is not None:
            env = self.spec.environment
            check_network("PPO", self.net, env.observation, self.actions.num_params, describe(env.action))
        what, size = "environments", self.spec.envs
        if not self.net.recurrent:
            what, size = "steps (unroll × environments)", self.spec.envs * self.unroll
        if size % self.minibatches:
            raise ConfigError(
                f"PPO cuts a batch of {size} {what} into {self.minibatches} minibatches, which leaves a remainder. "
                f"Choose minibatches that divide {size}, or other sizes for unroll and envs."
            )

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params: the network's, and the running statistics of observations and returns where they are used."""
        net_key, learn_key = jax.random.split(key)
        network = self.net.init(net_key)
        observations = statistics.init(self.spec.environment.observation) if self.normalise_observations else None
        returns = statistics.init(Box(())) if self.normalise_rewards else None
        params = Params(network, observations, returns)
        return TrainState(params, self.optimizer(0).init(network), jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def initial_carry(self) -> Carry:
        """The network's own carry, and the discounted return where rewards are normalised."""
        return Carry(self.net.carry, jnp.zeros(()) if self.normalise_rewards else None)

    def act(self, params: Params, carry: Carry, timestep: Timestep, key: jax.Array) -> Acted:
        """Sample an action; remember its log-probability and the value."""
        output, carry, discounted = self._look(params, carry, timestep)
        logits = self._masked(output.logits, timestep.action_mask)
        action = self.actions.sample(logits, key)
        extras: dict[str, Array] = {"log_prob": self.actions.log_prob(logits, action), "value": output.value}
        if discounted is not None:
            extras["discounted_return"] = discounted
        return Acted(action, carry, extras)

    def greedy(self, params: Params, carry: Carry, timestep: Timestep) -> Acted:
        """The most likely action."""
        output, carry, _ = self._look(params, carry, timestep)
        return Acted(self.actions.mode(self._masked(output.logits, timestep.action_mask)), carry)

    def bootstrap(self, params: Params, carry: Carry, observation: Tree) -> Array:
        """The value of an observation, as the network sees it after what it remembers."""
        return self.net.apply(params.network, carry.network, self._normalised(params, observation)).value

    def _look(self, params: Params, carry: Carry, timestep: Timestep) -> tuple[NetworkOutput, Carry, Array | None]:
        remembered = reset_carry(self.net, carry.network, timestep.first)
        output = self.net.apply(params.network, remembered, self._normalised(params, timestep.observation))
        if carry.discounted_return is None:
            return output, Carry(output.carry, None), None
        discounted = self.discount * carry.discounted_return + timestep.reward
        return output, Carry(output.carry, jnp.where(timestep.first, 0.0, discounted)), discounted

    def _normalised(self, params: Params, observation: Tree) -> Tree:
        if params.observations is None:
            return observation
        return statistics.normalise(params.observations, observation)

    def _masked(self, logits: jax.Array, mask: Array | None) -> jax.Array:
        return logits if mask is None else self.actions.mask(logits, mask)

    # ---- learning: one batch ---------------------------------------------------------------------------------------

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """Epochs of minibatch updates on one ``[T, B]`` batch."""
        params, samples = self._prepare(state.params, batch)
        optimizer = self.optimizer(state.step)
        entropy_cost = linear(self.entropy_cost, self.entropy_cost_end, self.spec.learn_steps)(state.step)

        def update(carry: Update, minibatch: Samples) -> tuple[Update, jax.Array]:
            gradients, metrics = jax.grad(self.loss, has_aux=True)(carry.network, minibatch, entropy_cost)
            gradients, metrics = mean_over_replicas((gradients, metrics))
            changes, optimizer_state = optimizer.update(gradients, carry.optimizer, carry.network)
            new = Update(optax.apply_updates(carry.network, changes), optimizer_state, carry.moved)
            if self.target_kl is not None:  # once moved too far, the rest of the batch changes nothing
                moved = carry.moved | (metrics["approx_kl"] > self.target_kl)
                new = jax.tree.map(lambda old, now: jnp.where(moved, old, now), carry, new)._replace(moved=moved)
            return new, jnp.stack([metrics[name] for name in METRICS])  # one array: one write in each update

        def epoch(carry: Update, key: jax.Array) -> tuple[Update, jax.Array]:
            return jax.lax.scan(update, carry, shuffle(samples, key, self.minibatches))

        start = Update(params.network, state.optimizer, jnp.zeros((), jnp.bool_))
        keys = jax.random.split(jax.random.fold_in(state.key, state.step), self.epochs)
        end, metrics = jax.lax.scan(epoch, start, keys)
        new = TrainState(params._replace(network=end.network), end.optimizer, state.step + 1, state.key)
        return new, dict(zip(METRICS, metrics.mean((0, 1)), strict=True))

    def _prepare(self, params: Params, batch: Unroll) -> tuple[Params, Samples]:
        """Params with their statistics brought up to date, and the samples that every epoch goes over.

        The policy saw observations through the old statistics, so these samples do too.
        """
        before, observation, reward = params, self._normalised(params, batch.observation), batch.reward
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
            target, advantage = vtrace(*arguments, valid=batch.valid, weigh=False)  # the surrogate has the ratio
        else:
            advantage, target = gae(reward, value, batch.bootstrap, *ends, *decay, batch.valid)
        old_value = None if self.value_clip is None else value
        block = Block(observation, batch.action, log_prob, old_value, advantage, target, batch.action_mask, batch.valid)
        if self.net.recurrent:  # whole sequences, environment first
            block, first = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (block, batch.first))
            return params, Samples(block, first, batch.carry.network)
        return params, Samples(jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), block), None, ())

    def _returns(self, batch: Unroll) -> Array:
        """``[T, B]`` the discounted return up to and with each step's reward; act sees that one only a step later."""

        def step(before: jax.Array, now: tuple[Array, Array, Array]) -> tuple[jax.Array, jax.Array]:
            reward, ended, valid = now
            reached = jnp.where(valid, self.discount * before + reward, before)
            return jnp.where(ended, 0.0, reached), reached

        ended = batch.terminated | batch.truncated
        valid = jnp.ones_like(ended) if batch.valid is None else batch.valid
        start = jnp.where(batch.first[0], 0.0, batch.extras["discounted_return"][0])
        _, reached = jax.lax.scan(step, start, (batch.reward, ended, valid))
        return reached

    def _revalue(self, params: Params, batch: Unroll, observation: Tree) -> tuple[Array, Array, Array]:
        """How much likelier each action has become since it was taken (log), values, and bootstraps: ``[T, B]`` each.

        All under the params with which this learn call begins, but for the final observations of cut episodes: an
        unroll has only act's values of those.
        """
        output = apply_unroll(self.net, params.network, batch.carry.network, observation, batch.first)
        log_prob = self.actions.log_prob(self._masked(output.logits, batch.action_mask), batch.action)
        carry = batch.carry._replace(network=output.carry)
        after = jax.vmap(self.bootstrap, (None, 0, 0))(params, carry, batch.last_observation)
        return log_prob - batch.extras["log_prob"], output.value, revalued(batch.bootstrap, batch.truncated, after)

    def loss(self, network: Tree, samples: Samples, entropy_cost: Array) -> tuple[jax.Array, Metrics]:
        """The clipped objective, the value's error and the entropy on one minibatch: (loss, metrics)."""
        block = samples.block
        if self.net.recurrent:
            output = jax.vmap(lambda *x: apply_sequence(self.net, network, *x))(
                samples.carry, block.observation, samples.first
            )
        else:
            output = jax.vmap(lambda x: self.net.apply(network, (), x))(block.observation)
        logits = self._masked(output.logits, block.action_mask)
        log_ratio = self.actions.log_prob(logits, block.action) - block.log_prob
        advantage = block.advantage
        if self.normalise_advantages:
            advantage = masked.normalise(advantage, block.valid)
        surrogate = losses.clipped_surrogate(log_ratio, advantage, self.clip, self.dual_clip)
        error = losses.value_loss(output.value, block.target, block.value, self.value_clip)

        policy_loss = masked.mean(surrogate, block.valid)
        value_loss = masked.mean(error, block.valid)
        entropy = masked.mean(self.actions.entropy(logits), block.valid)
        loss = policy_loss + self.value_cost * value_loss - entropy_cost * entropy
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": masked.mean(losses.approx_kl(log_ratio), block.valid),
        }


class Params(NamedTuple):
    """What act needs: the network's weights, and the statistics it normalises by."""

    network: Tree
    observations: statistics.RunningStatistics | None
    returns: statistics.RunningStatistics | None


class Carry(NamedTuple):
    """What act remembers of one environment from step to step."""

    network: Tree  # recurrent state
    discounted_return: Array | None  # []; where rewards are normalised


class Block(NamedTuple):
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
    """What epochs shuffle and slice along the first axis."""

    block: Block
    first: Array | None  # [B, T] for a recurrent network
    carry: Tree  # [B, ...] its state before the first step


class Update(NamedTuple):
    """What an update carries to the next one."""

    network: Tree
    optimizer: Tree
    moved: Array  # [] bool: the policy has moved by target_kl


def shuffle(samples: Samples, key: jax.Array, minibatches: int) -> Samples:
    """Reorder along the first axis and cut: ``[N, ...]`` to ``[minibatches, N / minibatches, ...]``."""
    order = random_order(key, samples.block.log_prob.shape[0])
    cut: Samples = jax.tree.map(lambda x: x[order].reshape((minibatches, -1, *x.shape[1:])), samples)
    return cut
