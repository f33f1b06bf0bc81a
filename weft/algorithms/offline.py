"""What every algorithm that learns from a data set shares: the data as its store, and a policy that act only tries out.

An algorithm derives from ``Offline`` and defines ``learn``. Its graph is that of any other off-policy algorithm, with a
``FixedReplay`` of the data in place of a replay: so it runs under the same plans. What the environments bring is not
learned from: the return that a run tells is that of the policy as it learns, its likeliest actions taken.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from weft.algorithms.actor_critic import ActorCritic
from weft.core.errors import ConfigError
from weft.core.replicas import mean_over_replicas
from weft.core.specs import allocate
from weft.core.trees import tree_map
from weft.core.types import Acted, Array, Timestep, TrainState, Transitions, Tree
from weft.data import Dataset, Episode, opened
from weft.graph.graph import Graph
from weft.graph.loops import off_policy
from weft.nets import NetworkOutput, apply_batch
from weft.ops import statistics
from weft.ops.optimizers import bounded_optimizer
from weft.ops.schedules import linear
from weft.replay import FixedReplay, Steps


class Params(NamedTuple):
    """What act needs: the network's weights, and the statistics that observations are normalised by."""

    network: Tree
    observations: statistics.RunningStatistics | None


@dataclass(frozen=True)
class NoData:
    """In place of the data's name, where a policy only acts."""


@dataclass(frozen=True)
class Offline(ActorCritic):
    """The fields of the data and of the optimiser; those of the network are ``ActorCritic``'s."""

    unroll: int = 64  # steps in which each environment tries the policy out, before it learns on, T
    data: str = ""  # what is learned from: the folder of a data set (weft record), or minari:NAME
    updates: int = 64  # learn calls for each unroll
    batch: int = 256  # steps in a batch
    hidden: tuple[int, ...] = (256, 256)  # layers of each tower; images: a CNN instead
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "relu"
    normalise_observations: bool = False  # by running mean and deviation; only floats
    learning_rate: float = 3e-4
    learning_rate_end: float | None = None  # reached linearly at the run's end; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"
    weight_decay: float = 0.0  # as AdamW has it
    max_gradient_norm: float | None = None  # None: no bound

    # ---- the data ---------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Dataset:
        """What is learned from; where a policy only acts, a single step that means nothing."""
        if isinstance(self.data, NoData):
            env = self.spec.environment
            no, mask = np.zeros(1, np.bool_), np.ones((2, env.mask_size), np.bool_) if env.action_mask else None
            action = np.zeros((1, *env.action.shape), env.action.dtype)
            one = Episode(allocate(env.observation, (2,)), action, np.zeros(1, np.float32), no, no, mask)
            return Dataset.from_episodes(env, [one])
        return opened(self.data)

    @property
    def replay(self) -> FixedReplay:
        """The data as a store."""
        return FixedReplay(steps_of(self.dataset), batch=self.batch, updates=self.updates)

    def graph(self) -> Graph:
        """env ⇄ act → replay → learn → act; what act brings is not kept."""
        return off_policy(self, self.replay)

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        super().check()
        name = type(self).__name__
        if self.recurrent or self.net.recurrent:
            raise ConfigError(
                f"{name} learns from single steps of a data set, which a recurrent network cannot: it would need what "
                "came before. Set recurrent to none, or give a network without a carry."
            )
        if isinstance(self.data, NoData):
            return
        if not isinstance(self.data, str) or not self.data:
            raise ConfigError(
                f"{name} learns from a data set, and data is {self.data!r}. Record one with `weft record RUN DIR` and "
                "give its folder, --algo.data DIR (in Python: data=...), or one of Minari's, minari:NAME."
            )
        self.dataset.check_fits(self.spec.environment, name, repr(self.data))

    def to_act(self) -> Self:
        """A copy that needs no data."""
        return dataclasses.replace(self, data=NoData())  # type: ignore[arg-type]

    # ---- the policy -------------------------------------------------------------------------------------------------

    def rule(self, step: Array | int) -> optax.GradientTransformation:
        """The optimiser for learn call ``step``."""
        rate: Any = linear(self.learning_rate, self.learning_rate_end, self.spec.learn_steps)(step)
        return bounded_optimizer(self.optimizer, rate, self.max_gradient_norm, self.weight_decay)

    def init(self, key: jax.Array) -> TrainState:
        """Fresh params: the network's weights, and statistics of observations where they are normalised."""
        state = super().init(key)
        seen = statistics.init(self.spec.environment.observation) if self.normalise_observations else None
        return state._replace(params=Params(state.params, seen))

    def act(self, params: Params, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """The likeliest action: there is nothing to explore for."""
        return self.greedy(params, carry, timestep)

    def look(self, params: Params, carry: Tree, timestep: Timestep) -> NetworkOutput:
        """As ``ActorCritic.look``, at the normalised observation."""
        if params.observations is not None:
            timestep = timestep._replace(observation=statistics.normalise(params.observations, timestep.observation))
        return super().look(params.network, carry, timestep)

    def bootstrap(self, params: Params, carry: Tree, observation: Tree) -> Array:
        """Nothing asks for it: what act brings is not learned from."""
        return jnp.zeros((), jnp.float32)

    # ---- parts of learn ---------------------------------------------------------------------------------------------

    def seen(self, params: Params, batch: Transitions) -> tuple[Params, Transitions]:
        """Params with statistics that have seen a batch, and the batch normalised by them."""
        if params.observations is None:
            return params, batch
        stats = statistics.update(params.observations, batch.observation, None, mean_over_replicas)
        both = (statistics.normalise(stats, part) for part in (batch.observation, batch.following))
        observation, following = both
        return params._replace(observations=stats), batch._replace(observation=observation, following=following)

    def log_prob_and_value(self, network: Tree, batch: Transitions) -> tuple[jax.Array, jax.Array, jax.Array]:
        """``[N]`` each: the log-probability of the action, the entropy there, and the network's value."""
        output = apply_batch(self.net, network, batch.observation)
        logits = self.allowed(output.logits, batch.action_mask)
        return self.actions.log_prob(logits, batch.action), self.actions.entropy(logits), output.value


def steps_of(data: Dataset) -> Steps:
    """A data set as a store has it."""
    observation = tree_map(np.asarray, data.observation)
    return Steps(observation, data.rows, data.action, data.reward, data.terminated, data.action_mask)
