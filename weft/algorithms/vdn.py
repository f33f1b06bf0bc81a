"""VDN (Sunehag et al., arXiv 1706.05296): DQN for a team, read top to bottom. The team's value is its agents' added up.

act     each agent by itself: the action of its highest value, or any with probability epsilon, which falls over the run
replay  keeps unrolls of the group; draws batches of steps with the n-step returns of the team's reward
learn   one step of the optimiser that moves the sum of the agents' values towards the team's reward + discount x the
        sum of the highest values of what followed, which a target network gives

Nobody is told what an agent's own part in the reward was: that the sum fits finds it. All agents share their params. An
agent that is not present is left out of the sum. QMIX (``qmix.py``) puts something better in its place: ``mix``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from weft.algorithms.epsilon_greedy import EpsilonGreedy, allowed
from weft.algorithms.replayed import Replayed
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import Discrete, Space, SpaceTree, describe
from weft.core.types import Array, Metrics, TrainState, Transitions, Tree
from weft.nets import Network, apply_batch, as_network, check_network, q_network
from weft.ops import masked
from weft.ops.choosing import of_chosen
from weft.ops.optimizers import bounded_optimizer
from weft.ops.schedules import linear
from weft.replay import UniformReplay


class Learner(NamedTuple):
    """What learn remembers besides the params."""

    optimizer: Tree
    target: Tree  # params of some learn calls ago


@dataclass(frozen=True)
class VDN(EpsilonGreedy, Replayed):
    """The hyper-parameters of learning; those of exploration and replay are its bases'."""

    acts_for_group: ClassVar[bool] = True

    unroll: int = 16  # steps of each environment that are stored at a time, T
    hidden: tuple[int, ...] = (64, 64)  # layers of an agent's network; images go through a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    network: Any = None  # your own, of one agent: weft.Network or (init, apply); its logits are the actions' values
    agent_ids: bool = True  # an agent's network also sees which agent it is: observations are {own, agent}
    team_reward: Literal["mean", "sum"] = "mean"  # what the agents' rewards come to; a run's returns are their mean
    double: bool = True  # the online network chooses what followed, the target network values it
    dueling: bool = False
    learning_rate: float = 5e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"
    target_period: int = 200  # learn calls between two copies of the params to the target network
    huber: float | None = None  # errors beyond this count linearly; None: all are squared
    max_gradient_norm: float = 10.0

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        name, env = type(self).__name__, self.spec.environment
        if env.agent is None:
            has = f"has the teams {', '.join(env.teams)}" if env.teams else "has one agent"
            raise ConfigError(
                f"{name} learns for one group of agents that act together, and environment {env.name!r} {has}. Use an "
                f"environment with a group (EnvSpec.of_agents makes its spec; weft:TwoStep-v0 is one), or "
                f"{'PPO for each team' if env.teams else 'DQN, which is the same for one agent'}."
            )
        if not isinstance(env.agent.action, Discrete):
            raise ConfigError(
                f"{name} adds up values of numbered actions, and an agent's actions in environment {env.name!r} are "
                f"{describe(env.agent.action)}. Use an environment whose agents have Discrete actions, or PPO, which "
                "takes any."
            )
        if self.team_reward not in ("mean", "sum"):
            raise ConfigError(f"{name}.team_reward must be 'mean' or 'sum', got {self.team_reward!r}")
        super().check()
        if self.network is not None:
            check_network(name, self.net, self.seen_by_one, self.choices, describe(self.chosen_from))

    # ---- the agents' networks ---------------------------------------------------------------------------------------

    @property
    def chosen_from(self) -> Space:
        """The actions of one agent."""
        env = self.spec.environment
        return env.action if env.agent is None else env.agent.action

    @property
    def seen_by_one(self) -> SpaceTree:
        """What an agent's network sees."""
        env = self.spec.environment
        assert env.agent is not None
        own = env.agent.observation
        return {"own": own, "agent": Discrete(len(env.agents))} if self.agent_ids else own

    @property
    def net(self) -> Network:
        """The values of all actions of one agent, as its logits."""
        if self.network is not None:
            return as_network(self.network)
        return q_network(
            self.seen_by_one, self.choices, hidden=self.hidden, activation=self.activation, dueling=self.dueling
        )

    def values(self, params: Tree, observation: Tree) -> jax.Array:
        """``[N, A, actions]`` of ``[N, ...]`` observations of the group: all agents in one batch."""
        count = len(self.spec.environment.agents)
        seen = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), observation["agents"])
        if self.agent_ids:
            rows = jax.tree.leaves(seen)[0].shape[0]
            seen = {"own": seen, "agent": jnp.arange(rows) % count}
        return apply_batch(self.net, params["agents"], seen).logits.reshape((-1, count, self.choices))

    def bootstrap(self, params: Tree, carry: Tree, observation: Tree) -> Array:
        """``[A]`` zeros: what followed is valued anew whenever it is drawn."""
        return jnp.zeros(len(self.spec.environment.agents), jnp.float32)

    # ---- the team's value -------------------------------------------------------------------------------------------

    def init_params(self, key: jax.Array) -> dict[str, Tree]:
        """``agents``: of the network that they share."""
        return {"agents": self.net.init(key)}

    def mix(self, params: Tree, values: Array, observation: Tree) -> jax.Array:
        """``[N]`` of the team, of ``[N, A]`` values of its agents, 0 for those that are not present."""
        return jnp.sum(values, -1)

    def team_value(self, params: Tree, observation: Tree, action: Array, values: Array | None = None) -> jax.Array:
        """``[N]``: what it is worth that the agents take ``action``, ``[N, A]``."""
        values = self.values(params, observation) if values is None else values
        chosen = of_chosen(values, action)
        if "present" in observation:
            chosen = jnp.where(observation["present"] > 0, chosen, 0.0)
        return self.mix(params, chosen, observation)

    # ---- learning: one step of the optimiser for each batch ---------------------------------------------------------

    @property
    def replay(self) -> UniformReplay:
        """What unrolls are kept in, with the team's reward."""
        return replace(super().replay, team_reward=self.team_reward)

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm)

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params, which are the target network's too."""
        net_key, learn_key = jax.random.split(key)
        params = self.init_params(net_key)
        target = jax.tree.map(jnp.copy, params)
        return TrainState(params, Learner(self.rule(0).init(params), target), jnp.zeros((), jnp.int32), learn_key)

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
        """The loss of the team's values, weighted; with metrics and the errors, ``[N]``."""
        value = self.team_value(params, batch.observation, batch.action)
        error = value - jax.lax.stop_gradient(self.aim(params, target, batch))
        each = optax.losses.l2_loss(error) if self.huber is None else optax.losses.huber_loss(error, delta=self.huber)
        valid = batch.weight > 0
        loss = masked.mean(batch.weight * each, valid)
        return loss, ({"loss": loss, "value": masked.mean(value, valid)}, error)

    def aim(self, params: Tree, target: Tree, batch: Transitions) -> jax.Array:
        """``[N]`` what the team's values are moved towards: its n-step return, and the value of what followed.

        Each agent chooses by itself: the mix grows with every agent's value, so together that is the team's best.
        """
        following = self.values(target, batch.following)
        chooser = self.values(params, batch.following) if self.double else following
        best = allowed(chooser, batch.following_mask).argmax(-1)
        return jnp.asarray(batch.reward + batch.discount * self.team_value(target, batch.following, best, following))
