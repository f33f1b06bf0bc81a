"""A2C (Mnih et al., arXiv 1602.01783), read top to bottom: one update for each batch. Run asynchronously it is A3C.

    act     sample an action
    grad    advantages from n-step returns (or GAE, arXiv 1506.02438), then the gradient of the loss: policy, value and
            entropy
    apply   one step of the optimiser

It assumes that the params it is given made the batch. IMPALA corrects for batches that older params made.
The network and how it acts are in ``actor_critic.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import optax

from weft.algorithms.actor_critic import ActorCritic
from weft.core.types import Acted, Array, Metrics, Timestep, TrainState, Tree, Unroll
from weft.nets import apply_unroll
from weft.ops import losses, masked
from weft.ops.gae import gae
from weft.ops.optimizers import bounded_optimizer
from weft.ops.rewards import reshaped
from weft.ops.schedules import linear


@dataclass(frozen=True)
class A2C(ActorCritic):
    """The hyper-parameters of learning; those of the network are ``ActorCritic``'s."""

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
    reward_clip: float | None = None  # and then clipped to between -this and this

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    # ---- acting: one environment, one step -------------------------------------------------------------------------

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """Sample an action."""
        output = self.look(params, carry, timestep)
        return Acted(self.actions.sample(output.logits, key), output.carry)

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
        """The policy's loss, the value's loss and the entropy on one batch, means over its steps: (loss, metrics)."""
        output = apply_unroll(self.net, params, batch.carry, batch.observation, batch.first)
        logits = self.allowed(output.logits, batch.action_mask)
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
