"""Agents that come and go, each life with a number of its own; and an algorithm that remembers the number it saw first.

Were a carry ever another agent's, another life's, another episode's or that of a worker's life before, the number that
it remembers would not be the one that it sees.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import weft

AGENTS = 3


class RosterState(NamedTuple):
    """Of each agent, and the episode's steps."""

    number: jax.Array  # [A] float32: of its life
    steps: jax.Array  # [A] float32: made in it
    present: jax.Array  # [A] bool
    time: jax.Array  # [] int32


@dataclass(frozen=True)
class Roster:
    """What an agent sees is the number of its life and its steps in it; by chance one leaves, or is there again."""

    @property
    def spec(self) -> weft.EnvSpec:
        one = weft.EnvSpec("Roster", weft.Box((2,)), weft.Discrete(2), pure=True, max_episode_steps=40)
        names = [f"a{k}" for k in range(AGENTS)]
        return weft.EnvSpec.of_agents("Roster", one, names, changing=True, max_episode_steps=40)

    def reset(self, key: jax.Array) -> tuple[RosterState, Any]:
        numbers = jax.random.randint(key, (AGENTS,), 1, 2**23).astype(jnp.float32)
        state = RosterState(numbers, jnp.zeros(AGENTS), jnp.ones(AGENTS, jnp.bool_), jnp.int32(0))
        return state, self._seen(state)

    def step(self, state: RosterState, action: jax.Array, key: jax.Array) -> tuple[RosterState, weft.Transition]:
        flip, new, end = jax.random.split(key, 3)
        present = state.present ^ (jax.random.uniform(flip, (AGENTS,)) < 0.2)
        begins = present & ~state.present
        numbers = jax.random.randint(new, (AGENTS,), 1, 2**23).astype(jnp.float32)
        state = RosterState(
            jnp.where(begins, numbers, state.number), jnp.where(begins, 0.0, state.steps + 1), present, state.time + 1
        )
        over = jax.random.uniform(end) < 0.05
        return state, weft.Transition(self._seen(state), jnp.zeros(AGENTS), over, ~over & (state.time >= 40))

    def _seen(self, state: RosterState) -> dict[str, jax.Array]:
        shown = jnp.stack([state.number, state.steps], -1) * state.present[:, None]
        return {"agents": shown, "present": state.present.astype(jnp.int8)}


@dataclasses.dataclass(frozen=True)
class Remembers(weft.Algorithm):
    """Its carry is the number that it saw first in its life, 0 before; learn counts where another was remembered."""

    unroll: int = 16

    def init(self, key: jax.Array) -> weft.TrainState:
        return weft.TrainState(jnp.zeros(()), (), jnp.int32(0), key)

    def initial_carry(self) -> jax.Array:
        return jnp.zeros(())

    def act(self, params: Any, carry: Any, timestep: weft.Timestep, key: jax.Array) -> weft.Acted:
        remembered = jnp.where(timestep.first, 0.0, carry)
        number = timestep.observation[0]
        extras = {"remembered": remembered}
        return weft.Acted(jax.random.randint(key, (), 0, 2), jnp.where(remembered == 0, number, remembered), extras)

    def learn(self, state: weft.TrainState, batch: weft.Unroll) -> tuple[weft.TrainState, dict[str, jax.Array]]:
        assert batch.valid is not None
        number, steps = batch.observation[..., 0], batch.observation[..., 1]
        remembered = batch.extras["remembered"]
        another = (remembered != 0) & (remembered != number)
        crossed = (remembered != 0) & (steps == 0)  # a life had begun, and its carry had not
        # What learn would begin from: the carry before the first step of the unroll.
        start = jnp.where(batch.first[0], 0.0, batch.carry)
        begun = (start != remembered[0]) & batch.valid[0]
        mixed = ((another | crossed) & batch.valid).sum() + begun.sum()
        new = state._replace(params=state.params + 1.0, step=state.step + 1)
        known = ((remembered != 0) & batch.valid).sum()
        return new, {"mixed": mixed.astype(jnp.float32), "known": known.astype(jnp.float32)}
