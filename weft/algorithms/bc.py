"""Behaviour cloning (Pomerleau, NeurIPS 1988), read top to bottom: do what the data set does.

act     the likeliest action; only to show how good the policy is
replay  the data set, from which batches of steps are drawn
learn   one step of the optimiser towards a higher probability of the recorded actions

It is as good as the data on average, and no better: rewards are not looked at. The network, the data and how it acts
are in ``offline.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import optax

from weft.algorithms.offline import Offline, Params
from weft.core.replicas import mean_over_replicas
from weft.core.types import Metrics, TrainState, Transitions, Tree


@dataclass(frozen=True)
class BC(Offline):
    """The hyper-parameters of learning; those of the data and the optimiser are ``Offline``'s."""

    entropy_cost: float = 0.0  # what a nat of entropy is worth, so that the policy does not become too sure

    def learn(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics]:
        """One learn call."""
        params, batch = self.seen(state.params, batch)
        found = jax.grad(self.loss, has_aux=True)(params.network, batch)
        gradient, metrics = mean_over_replicas(found)
        changes, optimizer = self.rule(state.step).update(gradient, state.optimizer, params.network)
        params = Params(optax.apply_updates(params.network, changes), params.observations)
        return TrainState(params, optimizer, state.step + 1, state.key), metrics

    def loss(self, network: Tree, batch: Transitions) -> tuple[jax.Array, Metrics]:
        """Minus the mean log-probability of what was done, less what its entropy is worth."""
        log_prob, entropy, _ = self.log_prob_and_value(network, batch)
        loss = -log_prob.mean() - self.entropy_cost * entropy.mean()
        return loss, {"loss": loss, "log_prob": log_prob.mean(), "entropy": entropy.mean()}
