"""DQN (Mnih et al., doi 10.1038/nature14236), read top to bottom, with what was found to improve it as fields.

act     the action of the highest value, or any action with probability epsilon, which falls over the run
replay  keeps unrolls; draws batches of steps with their n-step returns, uniformly or by priority
learn   one step of the optimiser towards reward + discount x the highest value of what followed, which a target
        network gives: a copy of the params that is renewed now and then

double       the online network chooses what followed, the target network values it       arXiv 1509.06461
dueling      the network adds up a state's value and each action's advantage               arXiv 1511.06581
n_step       rewards of n steps before a value is trusted                                  arXiv 1602.01783
prioritised  steps with large errors are drawn more often                                  arXiv 1511.05952
quantiles    the network gives quantiles of the return, whose mean is the value (QR-DQN)   arXiv 1710.10044
atoms        it gives probabilities of returns that are fixed, at equal distances (C51)    arXiv 1707.06887
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.epsilon_greedy import EpsilonGreedy, allowed
from weft.algorithms.replayed import Replayed
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import describe
from weft.core.types import Array, Metrics, TrainState, Transitions, Tree
from weft.nets import Network, apply_batch, as_network, check_network, q_network
from weft.ops import atoms, losses, masked
from weft.ops.choosing import of_chosen
from weft.ops.optimizers import bounded_optimizer
from weft.ops.schedules import linear


class Learner(NamedTuple):
    """What learn remembers besides the params."""

    optimizer: Tree
    target: Tree  # params of some learn calls ago


@dataclass(frozen=True)
class DQN(EpsilonGreedy, Replayed):
    """The hyper-parameters of learning; those of exploration and replay are its bases'."""

    unroll: int = 16  # steps of each environment that are stored at a time, T
    hidden: tuple[int, ...] = (120, 84)  # layers; images go through a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    network: Any = None  # your own: weft.Network or a pair (init, apply); its logits are the actions' values
    double: bool = True
    dueling: bool = False
    quantiles: int = 0  # of the return of each action; 0: its mean alone
    atoms: int = 0  # returns, from value_min to value_max, whose probabilities are learned; 0: the mean alone
    value_min: float = -10.0  # with atoms: lower returns count as this
    value_max: float = 10.0  # with atoms: higher returns count as this
    learning_rate: float = 1e-3
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"
    target_period: int = 200  # learn calls between two copies of the params to the target network
    huber: float | None = None  # errors beyond this count linearly; None: all are squared; with quantiles: none is
    max_gradient_norm: float = 10.0

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
            dueling=self.dueling,
            quantiles=self.numbers,
        )

    @property
    def numbers(self) -> int:
        """What the network gives for each action: a value, quantiles, or the logits of atoms."""
        return max(1, self.quantiles, self.atoms)

    @property
    def support(self) -> jax.Array:
        """``[Z]``: the returns that are the atoms."""
        return jnp.linspace(self.value_min, self.value_max, self.atoms)

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        if self.atoms and self.quantiles:
            raise ConfigError(
                f"DQN: quantiles={self.quantiles} and atoms={self.atoms} are two ways to learn how returns are spread. "
                "Set one of them to 0."
            )
        if self.atoms == 1 or (self.atoms and not self.value_min < self.value_max):
            raise ConfigError(
                f"DQN: {self.atoms} atoms from value_min={self.value_min:g} to value_max={self.value_max:g} cannot "
                "tell returns apart. Use at least 2, and a value_max above value_min."
            )
        if self.network is not None:
            env, outputs = self.spec.environment, self.choices * self.numbers
            check_network(type(self).__name__, self.net, env.observation, outputs, describe(env.action))

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, which are the target network's too."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        target = jax.tree.map(jnp.copy, params)
        return TrainState(params, Learner(self.rule(0).init(params), target), jnp.zeros((), jnp.int32), learn_key)

    # ---- learning: one step of the optimiser for each batch ---------------------------------------------------------

    def learn_and_tell(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics, Tree]:
        """One learn call; and the errors of the batch, by which a prioritised replay draws."""
        optimizer, target = state.optimizer
        gradient, (metrics, error) = jax.grad(self.loss, has_aux=True)(state.params, target, batch)
        gradient, metrics = mean_over_replicas((gradient, metrics))
        changes, optimizer = self.rule(state.step).update(gradient, optimizer, state.params)
        params, step = optax.apply_updates(state.params, changes), state.step + 1
        renew = step % self.target_period == 0
        target = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, target)
        return TrainState(params, Learner(optimizer, target), step, state.key), metrics, self.tell(batch, error)

    def loss(self, params: Tree, target: Tree, batch: Transitions) -> tuple[Array, tuple[Metrics, Array]]:
        """The loss of the values, weighted; with metrics and the errors, ``[N]``."""
        returns = _of(self.returns(params, batch.observation), batch.action)
        aim = jax.lax.stop_gradient(self.aim(params, target, batch))
        value = self.mean(returns)
        if self.atoms:
            error, each = value - aim @ self.support, atoms.cross_entropy(returns, aim)
        elif self.quantiles:
            error, each = value - aim.mean(-1), losses.quantile_regression(returns, aim, self.huber)
        else:
            error = value - aim[:, 0]
            each = (
                optax.losses.l2_loss(error) if self.huber is None else optax.losses.huber_loss(error, delta=self.huber)
            )
        valid = batch.weight > 0  # a weight of importance makes a step's part smaller, and leaves the mean's count
        loss = masked.mean(batch.weight * each, valid)
        return loss, ({"loss": loss, "value": masked.mean(value, valid)}, error)

    def aim(self, params: Tree, target: Tree, batch: Transitions) -> jax.Array:
        """What returns are moved towards: the n-step return, and the returns of what followed.

        ``[N, Q]``: a return, or quantiles; with atoms ``[N, Z]``, their probabilities.
        """
        following = self.returns(target, batch.following)
        values = self.values(params, batch.following) if self.double else self.mean(following)
        best = _of(following, allowed(values, batch.following_mask).argmax(-1))
        reward, discount = batch.reward[:, None], batch.discount[:, None]
        if self.atoms:
            return atoms.project(jax.nn.softmax(best), reward + discount * self.support, self.support)
        return jnp.asarray(reward + discount * best)

    def returns(self, params: Tree, observation: Tree) -> jax.Array:
        """``[N, actions, Q]``: the quantiles of each action's return, from the lowest; or its mean alone, Q = 1.

        With atoms, ``[N, actions, Z]``: the logits of their probabilities.
        """
        logits = apply_batch(self.net, params, observation).logits
        return logits.reshape((-1, self.choices, self.numbers))

    def mean(self, returns: jax.Array) -> jax.Array:
        """``[...]`` of ``[..., Q]``, or of the logits of atoms."""
        return jax.nn.softmax(returns) @ self.support if self.atoms else returns.mean(-1)

    def values(self, params: Tree, observation: Tree) -> jax.Array:
        """``[N, actions]`` of ``[N, ...]`` observations."""
        return self.mean(self.returns(params, observation))


def _of(returns: Array, action: Array) -> jax.Array:
    """``[N, Q]`` of one action each, of ``[N, actions, Q]``."""
    return of_chosen(returns, action[:, None], axis=1)
