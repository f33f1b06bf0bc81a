"""Policies that do not learn, and of these the one that was trained before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp

from weft.core.errors import ConfigError
from weft.core.specs import Spec
from weft.core.types import Acted, Metrics, Timestep, TrainState, Tree, Unroll
from weft.graph.algorithm import Algorithm


@dataclass(frozen=True)
class NotLearning(Algorithm):
    """What all of them have: params that stay as they are, and a learn that changes nothing."""

    def init(self, key: jax.Array) -> TrainState:
        """No params."""
        return TrainState((), (), jnp.zeros((), jnp.int32), key)

    def learn(self, state: TrainState, batch: Unroll) -> tuple[TrainState, Metrics]:
        """The same, a version later."""
        return state._replace(step=state.step + 1), {}


@dataclass(frozen=True)
class Frozen(NotLearning):
    """A policy that was trained before, ``of`` with ``params``; ``run.frozen()`` makes one."""

    of: Algorithm | None = None
    params: Any = None
    greedily: bool = False  # the likeliest action, else as it explored at its run's end

    def with_spec(self, spec: Spec) -> Self:
        """With ``of`` bound too."""
        bound = super().with_spec(spec)
        if self.of is None:
            raise ConfigError("Frozen: no algorithm was given. run.frozen() makes a frozen policy of a run.")
        object.__setattr__(bound, "of", self.of.with_spec(spec))
        return bound

    @property
    def central_critic(self) -> bool:  # type: ignore[override]
        """As ``of`` has it."""
        return self.of is not None and self.of.central_critic

    def check(self) -> None:
        """Refuse params that are another algorithm's, or of other spaces."""
        assert self.of is not None
        wanted = jax.eval_shape(self.of.init, jax.eval_shape(lambda: jax.random.key(0))).params
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (wanted, self.params)]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                f"Frozen: the params do not fit {type(self.of).__name__} in environment "
                f"{self.spec.environment.name!r}: it was trained with other spaces, or another network."
            )
        super().check()

    def init(self, key: jax.Array) -> TrainState:
        """The params that were given."""
        return super().init(key)._replace(params=jax.tree.map(jnp.asarray, self.params))

    def initial_carry(self) -> Tree:
        """As ``of`` has it."""
        assert self.of is not None
        return self.of.initial_carry()

    def act(self, params: Tree, carry: Tree, timestep: Timestep, key: jax.Array) -> Acted:
        """What ``of`` does."""
        assert self.of is not None
        if self.greedily:
            return self.of.greedy(params, carry, timestep)._replace(extras={})
        return self.of.act_at(params, carry, timestep, key, jnp.int32(2**31 - 1))._replace(extras={})
