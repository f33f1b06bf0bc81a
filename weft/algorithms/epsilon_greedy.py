"""What algorithms that value numbered actions share: take the best one, or now and then any.

An algorithm derives from ``EpsilonGreedy`` and defines ``values``. One that acts for a group of ``A`` agents gives
values ``[N, A, actions]``: each agent takes its best action, or any, by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import Discrete, Space, describe
from weft.core.types import Acted, Array, Timestep, Tree
from weft.graph.algorithm import Algorithm
from weft.ops.schedules import linear


@dataclass(frozen=True)
class EpsilonGreedy(Algorithm):
    """The fields of exploration."""

    epsilon: float = 1.0  # the share of random actions at first
    epsilon_end: float = 0.05  # and in the end
    exploration: float = 0.2  # the part of the run over which it falls, linearly

    def values(self, params: Tree, observation: Tree) -> jax.Array:
        """``[N, actions]``, or ``[N, A, actions]`` of a group, of ``[N, ...]`` observations."""
        raise ConfigError(f"{type(self).__name__} must define values(self, params, observation)")

    def check(self) -> None:
        """Refuse what cannot work, before anything starts."""
        env = self.spec.environment
        if not isinstance(self.chosen_from, Discrete):
            raise ConfigError(
                f"{type(self).__name__} chooses among numbered actions, and the actions of environment {env.name!r} "
                f"are {describe(self.chosen_from)}. Use an environment with Discrete actions, or SAC for Box ones, or "
                "PPO, which takes any."
            )
        super().check()

    def act_at(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array, step: Array) -> Acted:
        """The best action, or with probability epsilon any that is allowed."""
        epsilon = linear(self.epsilon, self.epsilon_end, int(self.exploration * self.spec.steps))(step)
        whether, which = jax.random.split(key)
        best, carry, _ = self.greedy(params, carry, timestep)
        # Noise for each action, so that a mask can leave some out; the highest is any of the rest with equal chances.
        noise = allowed(jax.random.uniform(which, (*best.shape, self.choices)), timestep.action_mask)
        explores = jax.random.uniform(whether, best.shape) < epsilon
        return Acted(jnp.where(explores, jnp.argmax(noise, -1).astype(best.dtype), best), carry)

    def greedy(self, params: Tree, carry: Tree, timestep: Timestep) -> Acted:
        """The action of the highest value."""
        values = allowed(self.values_of_one(params, timestep.observation), timestep.action_mask)
        return Acted(jnp.argmax(values, -1).astype(self.spec.environment.action.dtype), carry)

    def values_of_one(self, params: Tree, observation: Tree) -> jax.Array:
        """``[actions]``, or ``[A, actions]``, of one observation."""
        return self.values(params, jax.tree.map(lambda x: x[None], observation))[0]

    @property
    def choices(self) -> int:
        """How many actions there are to choose from."""
        action = self.chosen_from
        return action.n if isinstance(action, Discrete) else 0

    @property
    def chosen_from(self) -> Space:
        """The actions that values are of: the environment's."""
        return self.spec.environment.action


def allowed(values: Array, mask: Array | None) -> jax.Array:
    """``values`` (``[..., actions]``) under which an action that is not allowed is never the highest.

    ``mask`` has a flag for each of them; those of a group's agents may lie one after another.
    """
    return jnp.asarray(values) if mask is None else jnp.where(mask.reshape(values.shape), values, -jnp.inf)
