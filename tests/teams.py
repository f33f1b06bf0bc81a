"""Small environments with agents, for tests: each agent is to name the number that it sees."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import weft


class Called(NamedTuple):
    wanted: jax.Array  # [A] int32
    present: jax.Array  # [A] bool
    time: jax.Array  # [] int32


@dataclass(frozen=True)
class Names:
    """One group. With ``changing`` an agent that names another number leaves until the episode ends."""

    agents: int = 3
    limit: int = 8
    changing: bool = False

    @property
    def spec(self) -> weft.EnvSpec:
        one = weft.EnvSpec("Names", weft.Box((4,)), weft.Discrete(4), pure=True)
        names = [f"a{i}" for i in range(self.agents)]
        return weft.EnvSpec.of_agents("Names", one, names, changing=self.changing, max_episode_steps=self.limit)

    def reset(self, key: jax.Array) -> tuple[Called, Any]:
        state = Called(
            jax.random.randint(key, (self.agents,), 0, 4), jnp.ones(self.agents, jnp.bool_), jnp.zeros((), jnp.int32)
        )
        return state, self.look(state)

    def look(self, state: Called) -> Any:
        seen = {"agents": jax.nn.one_hot(state.wanted, 4)}
        return {**seen, "present": state.present.astype(jnp.int8)} if self.changing else seen

    def step(self, state: Called, action: jax.Array, key: jax.Array) -> tuple[Called, weft.Transition]:
        right = action == state.wanted
        reward = (right & state.present).astype(jnp.float32)
        present = state.present & right if self.changing else state.present
        state = Called(jax.random.randint(key, (self.agents,), 0, 4), present, state.time + 1)
        return state, weft.Transition(self.look(state), reward, ~present.any(), state.time >= self.limit)


@dataclass(frozen=True)
class RedAndBlue:
    """Two groups, of 2 and 3 agents. Where it is ``masked``, no agent may name the number after its own."""

    limit: int = 8
    masked: bool = False

    @property
    def spec(self) -> weft.EnvSpec:
        one = weft.EnvSpec("RedAndBlue", weft.Box((4,)), weft.Discrete(4), pure=True, action_mask=self.masked)
        teams = {
            team: weft.EnvSpec.of_agents(
                "RedAndBlue", one, [f"{team}_{i}" for i in range(count)], max_episode_steps=self.limit
            )
            for team, count in (("red", 2), ("blue", 3))
        }
        return weft.EnvSpec.of_teams("RedAndBlue", teams, max_episode_steps=self.limit, action_mask=self.masked)

    def reset(self, key: jax.Array) -> tuple[Called, Any]:
        state = Called(jax.random.randint(key, (5,), 0, 4), jnp.ones(5, jnp.bool_), jnp.zeros((), jnp.int32))
        return state, self.look(state)

    def look(self, state: Called) -> Any:
        seen = jax.nn.one_hot(state.wanted, 4)
        return {"red": {"agents": seen[:2]}, "blue": {"agents": seen[2:]}}

    def action_mask(self, state: Called) -> Any:
        allowed = jax.nn.one_hot((state.wanted + 1) % 4, 4) == 0
        return {"red": allowed[:2].reshape(-1), "blue": allowed[2:].reshape(-1)}

    def step(self, state: Called, action: Any, key: jax.Array) -> tuple[Called, weft.Transition]:
        chosen = jnp.concatenate([action["red"], action["blue"]])
        right = (chosen == state.wanted).astype(jnp.float32)
        state = Called(jax.random.randint(key, (5,), 0, 4), state.present, state.time + 1)
        reward: Any = {"red": right[:2], "blue": right[2:]}
        return state, weft.Transition(self.look(state), reward, jnp.zeros((), jnp.bool_), state.time >= self.limit)
