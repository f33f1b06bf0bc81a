"""DQN (Mnih et al., doi 10.1038/nature14236), read top to bottom, with what was found to improve it as fields.

act     the action of the highest value, or any action with probability epsilon, which falls over the run
replay  keeps unrolls; draws batches of steps with their n-step returns, uniformly or by priority
learn   one step of the optimiser towards reward + discount x the highest value of what followed, which a target
        network gives: a copy of the params that is renewed now and then

double       the online network chooses what followed, the target network values it       arXiv 1509.06461
dueling      the network adds up a state's value and each action's advantage               arXiv 1511.06581
n_step       rewards of n steps before a value is trusted                                  arXiv 1602.01783
prioritised  steps with large errors are drawn more often                                  arXiv 1511.05952
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.ranges import check_ranges
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Discrete, describe
from weft.core.types import Acted, Array, Metrics, Priorities, Timestep, TrainState, Transitions, Tree
from weft.graph.algorithm import Algorithm
from weft.graph.graph import Graph
from weft.graph.loops import off_policy
from weft.nets import Network, as_network, check_network, q_network
from weft.ops import masked
from weft.ops.optimizers import bounded_optimizer
from weft.ops.schedules import linear
from weft.replay import PrioritisedReplay, UniformReplay


class Learner(NamedTuple):
    """What learn remembers besides the params."""

    optimizer: Tree
    target: Tree  # params of some learn calls ago


@dataclass(frozen=True)
class DQN(Algorithm):
    """The hyper-parameters."""

    unroll: int = 16  # steps of each environment that are stored at a time, T
    hidden: tuple[int, ...] = (120, 84)  # layers; images go through a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    network: Any = None  # your own: weft.Network or a pair (init, apply); its logits are the actions' values
    double: bool = True
    dueling: bool = False
    n_step: int = 1
    prioritised: bool = False
    priority_power: float = 0.6  # prioritised: 0 draws every step alike, 1 in proportion to its error
    importance_power: float = 0.4  # prioritised: how far weights correct for that at first; 1 at the run's end
    capacity: int = 100_000  # steps that are kept
    batch: int = 64  # steps in a batch
    samples_per_insert: float = 8.0  # how often a step is drawn on average
    learning_begins: int = 1_000  # steps that are kept before the first batch is drawn
    learning_rate: float = 1e-3
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"
    discount: float = 0.99
    epsilon: float = 1.0  # the share of random actions at first
    epsilon_end: float = 0.05  # and in the end
    exploration: float = 0.2  # the part of the run over which it falls, linearly
    target_period: int = 200  # learn calls between two copies of the params to the target network
    huber: float | None = None  # errors beyond this count linearly; None: all are squared
    max_gradient_norm: float = 10.0
    reward_scale: float = 1.0  # rewards are multiplied by this
    reward_clip: float | None = None  # and then clipped to between -this and this

    @property
    def net(self) -> Network:
        """The values of all actions, as its logits."""
        if self.network is not None:
            return as_network(self.network)
        return q_network(
            self.spec.environment.observation,
            self._actions,
            hidden=self.hidden,
            activation=self.activation,
            dueling=self.dueling,
        )

    @property
    def replay(self) -> UniformReplay:
        """What unrolls are kept in."""
        settings: dict[str, Any] = {
            "capacity": self.capacity,
            "batch": self.batch,
            "samples_per_insert": self.samples_per_insert,
            "begin": self.learning_begins,
            "n_step": self.n_step,
            "discount": self.discount,
            "reward_scale": self.reward_scale,
            "reward_clip": self.reward_clip,
        }
        if not self.prioritised:
            return UniformReplay(**settings)
        return PrioritisedReplay(
            **settings,
            alpha=self.priority_power,
            beta=self.importance_power,
            beta_draws=self.spec.learn_steps,
        )

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def graph(self) -> Graph:
        """env ⇄ act → replay → learn → act."""
        return off_policy(self, self.replay)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        check_ranges(self)
        env, name = self.spec.environment, type(self).__name__
        if not isinstance(env.action, Discrete):
            raise ConfigError(
                f"{name} chooses among numbered actions, and the actions of environment {env.name!r} are "
                f"{describe(env.action)}. Use an environment with Discrete actions, or PPO, which takes any."
            )
        self.replay.check(name, self.unroll, self.spec.envs)
        if self.network is not None:
            check_network(name, self.net, env.observation, self._actions, describe(env.action))

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, which are the target network's too."""
        net_key, learn_key = jax.random.split(key)
        params = self.net.init(net_key)
        target = jax.tree.map(jnp.copy, params)
        return TrainState(params, Learner(self.rule(0).init(params), target), jnp.zeros((), jnp.int32), learn_key)

    # ---- acting: one environment, one step --------------------------------------------------------------------------

    def act_at(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """The best action, or with probability epsilon any that is allowed."""
        epsilon = linear(self.epsilon, self.epsilon_end, int(self.exploration * self.spec.steps))(step)
        whether, which = jax.random.split(key)
        best = self.greedy(params, carry, timestep).action
        # Noise for each action, so that a mask can leave some out; the highest is any of the rest with equal chances.
        noise = _allowed(jax.random.uniform(which, (self._actions,)), timestep.action_mask)
        explores = jax.random.uniform(whether) < epsilon
        return Acted(jnp.where(explores, jnp.argmax(noise).astype(best.dtype), best), carry)

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The action of the highest value."""
        values = _allowed(self.net.apply(params, (), timestep.observation).logits, timestep.action_mask)
        return Acted(jnp.argmax(values).astype(self.spec.environment.action.dtype), carry)

    # ---- learning: one step of the optimiser for each batch ---------------------------------------------------------

    def learn(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics]:
        """One learn call, without what the replay is told of it."""
        return self.learn_and_tell(state, batch)[:2]

    def learn_and_tell(self, state: TrainState, batch: Transitions) -> tuple[TrainState, Metrics, Tree]:
        """One learn call; and the errors of the batch, by which a prioritised replay draws."""
        optimizer, target = state.optimizer
        gradient, (metrics, error) = jax.grad(self.loss, has_aux=True)(state.params, target, batch)
        gradient, metrics = mean_over_replicas((gradient, metrics))
        changes, optimizer = self.rule(state.step).update(gradient, optimizer, state.params)
        params, step = optax.apply_updates(state.params, changes), state.step + 1
        renew = step % self.target_period == 0
        target = jax.tree.map(lambda new, old: jnp.where(renew, new, old), params, target)
        told = Priorities(batch.ids, jnp.abs(error)) if self.prioritised else ()
        return TrainState(params, Learner(optimizer, target), step, state.key), metrics, told

    def loss(self, params: Tree, target: Tree, batch: Transitions) -> tuple[Array, tuple[Metrics, Array]]:
        """The loss of the values, weighted; with metrics and the errors, ``[N]``."""
        values = self.values(params, batch.observation)
        value = jnp.take_along_axis(values, batch.action[:, None], axis=-1)[:, 0]
        error = value - jax.lax.stop_gradient(self.aim(params, target, batch))
        valid = batch.weight > 0  # a weight of importance makes a step's part smaller, and leaves the mean's count
        each = optax.losses.l2_loss(error) if self.huber is None else optax.losses.huber_loss(error, delta=self.huber)
        loss = masked.mean(batch.weight * each, valid)
        return loss, ({"loss": loss, "value": masked.mean(value, valid)}, error)

    def aim(self, params: Tree, target: Tree, batch: Transitions) -> Array:
        """``[N]`` what the values are moved towards: the n-step return, and the value of what followed."""
        following = _allowed(self.values(target, batch.following), batch.following_mask)
        if self.double:
            chosen = _allowed(self.values(params, batch.following), batch.following_mask).argmax(-1)
            best = jnp.take_along_axis(following, chosen[:, None], axis=-1)[:, 0]
        else:
            best = following.max(-1)
        return batch.reward + batch.discount * best

    def values(self, params: Tree, observation: Tree) -> Array:
        """``[N, actions]`` of ``[N, ...]`` observations."""
        net = self.net
        return jax.vmap(lambda x: net.apply(params, (), x).logits)(observation)

    @property
    def _actions(self) -> int:
        action = self.spec.environment.action
        return action.n if isinstance(action, Discrete) else 0


def _allowed(values: Array, mask: Array | None) -> Array:
    """``values`` (``[..., actions]``) under which an action that is not allowed is never the highest."""
    return values if mask is None else jnp.where(mask, values, -jnp.inf)
