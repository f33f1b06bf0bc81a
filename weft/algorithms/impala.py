"""IMPALA (Espeholt et al., arXiv 1802.01561), read top to bottom: one update for each batch, right for stale batches.

    act     sample an action, remember its log-probability
    grad    V-trace: weigh each step by how much likelier the learner's policy makes its action, up to a bound; then
            the gradient of the loss: policy, value and entropy
    apply   one step of the optimiser

The network and how it acts are in ``actor_critic.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.actor_critic import ActorCritic
from weft.core.errors import ConfigError
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.nets import NetworkOutput, apply_unroll
from weft.ops import losses, masked
from weft.ops.optimizers import bounded_optimizer
from weft.ops.recursion import revalued
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear
from weft.ops.vtrace import vtrace


@dataclass(frozen=True)
class IMPALA(ActorCritic):
    """The hyper-parameters of learning; those of the network are ``ActorCritic``'s."""

    unroll: int = 20  # steps of each environment in a batch, T
    learning_rate: float = 6e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"
    discount: float = 0.99
    trace_decay: float = 1.0  # lambda: how far V-trace looks ahead
    clip_rho: float = 1.0  # bound on the weight of a step's own error; decides which policy's value is learned
    clip_c: float = 1.0  # bound on the weight of later errors; decides how quickly it is learned
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    max_gradient_norm: float = 0.5
    normalise_advantages: bool = False  # in each batch
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        if self.clip_c > self.clip_rho:
            raise ConfigError(
                f"IMPALA.clip_c = {self.clip_c} is above clip_rho = {self.clip_rho}, for which V-trace need not "
                "converge. Choose clip_c of at most clip_rho."
            )

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """Sample an action; remember its log-probability, from which the learner sees how stale the batch is."""
        output = self.look(params, carry, timestep)
        action = self.actions.sample(output.logits, key)
        return Acted(action, output.carry, {"log_prob": self.actions.log_prob(output.logits, action)})

    # ---- learning: one update for each batch -----------------------------------------------------------------------

    def grad(self, params: Tree, batch: Unroll) -> tuple[Tree, Metrics]:
        """Gradients of the loss on one ``[T, B]`` batch, in the structure of ``params``, and metrics."""
        gradients, metrics = jax.grad(self.loss, has_aux=True)(params, batch)
        return gradients, metrics

    def apply(self, state: TrainState, gradients: Tree) -> TrainState:
        """One step of the optimiser. ``gradients`` has the structure of the params."""
        changes, optimizer = self.rule(state.step).update(gradients, state.optimizer, state.params)
        return TrainState(optax.apply_updates(state.params, changes), optimizer, state.step + 1, state.key)

    def loss(self, params: Tree, batch: Unroll) -> tuple[jax.Array, Metrics]:
        """The policy's loss, the value's loss and the entropy on one batch, means over its steps: (loss, metrics).

        A recurrent network starts from act's carry, which older params may have made.
        """
        output = apply_unroll(self.net, params, batch.carry, batch.observation, batch.first)
        logits = self.allowed(output.logits, batch.action_mask)
        log_prob = self.actions.log_prob(logits, batch.action)
        log_ratio = log_prob - batch.extras["log_prob"]
        target, advantage = self._vtrace(params, batch, *jax.lax.stop_gradient((output, log_ratio)))

        policy_loss = masked.mean(losses.policy_gradient(log_prob, advantage), batch.valid)
        value_loss = masked.mean(losses.value_loss(output.value, target), batch.valid)
        entropy = masked.mean(self.actions.entropy(logits), batch.valid)
        loss = policy_loss + self.value_cost * value_loss - self.entropy_cost * entropy
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": masked.mean(losses.approx_kl(log_ratio), batch.valid),  # from the policy that acted
            "weight": masked.mean(jnp.minimum(self.clip_rho, jnp.exp(log_ratio)), batch.valid),  # 1: nothing is stale
        }

    def _vtrace(self, params: Tree, batch: Unroll, output: NetworkOutput, log_ratio: Array) -> tuple[Array, Array]:
        """Targets and advantages, ``[T, B]``.

        V-trace is defined for one value function, the learner's, so the learner's params value what follows the last
        step. The batch does not hold the final observation of a truncated episode, so act's value of it is used there.
        That value is as old as the batch, which makes it no worse a target than a target network's.
        """
        after = jax.vmap(self.bootstrap, (None, 0, 0))(params, output.carry, batch.last_observation)
        target, advantage = vtrace(
            reshaped(batch.reward, self.reward_scale, self.reward_clip),
            output.value,
            revalued(batch.bootstrap, batch.truncated, jax.lax.stop_gradient(after)),
            batch.terminated,
            batch.truncated,
            log_ratio,
            self.discount,
            self.trace_decay,
            self.clip_rho,
            self.clip_c,
            batch.valid,
        )
        return target, masked.normalise(advantage, batch.valid) if self.normalise_advantages else advantage
