"""A fragment of your own: a bonus for places that were seldom visited, added to rewards on their way to learn.

The corridor's only reward is at its far end, where chance never leads: without the bonus there is nothing to learn
from. The returns that a run reports are the environment's own, without the bonus.

python examples/fragment.py
weft show examples.fragment:CuriousPPO examples.fragment:Corridor
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import weft


@dataclass(frozen=True)
class CuriousPPO(weft.PPO):
    """PPO with a bonus of ``bonus / sqrt(visits)`` for the cell of a grid that each observation lies in."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    bonus: float = 0.3
    bins: int = 20  # to each number of an observation

    def graph(self) -> weft.Graph:
        return super().graph().insert("novelty", self.novelty, self.no_visits, on="unroll")

    def no_visits(self, key: jax.Array) -> jax.Array:
        """The fragment's state at the start of a run: visits to each cell."""
        (numbers,) = self.spec.environment.observation.shape
        return jnp.zeros(self.bins**numbers)

    def novelty(self, visits: jax.Array, unroll: weft.Unroll) -> tuple[jax.Array, weft.Unroll]:
        """State and message in, state and message out: once for each unroll, just before learn."""
        cells = self.cells(unroll.observation)
        now = jnp.zeros_like(visits).at[cells].add(1.0)
        visits = visits + weft.mean_over_replicas(now)  # every replica must end with the same state
        bonus = self.bonus / jnp.sqrt(jnp.maximum(visits[cells], 1.0))
        return visits, unroll._replace(reward=unroll.reward + bonus)

    def cells(self, observation: jax.Array) -> jax.Array:
        """The cell, [T, B], of observations [T, B, numbers]; where a bound is infinite the grid is from -3 to 3."""
        space = self.spec.environment.observation
        low, high = np.clip(space.low, -3, 3), np.clip(space.high, -3, 3)
        places = jnp.clip((observation - low) / (high - low) * self.bins, 0, self.bins - 1).astype(jnp.int32)
        return places @ self.bins ** np.arange(space.shape[0])


@dataclass(frozen=True)
class Corridor:
    """From end to end, a step left or right at a time. Reward 1 for arriving, less 0.01 for each step to the right."""

    length: int = 40
    limit: int = 60

    @property
    def spec(self) -> weft.EnvSpec:
        space = weft.Box((1,), low=0.0, high=1.0)
        return weft.EnvSpec("Corridor", space, weft.Discrete(2), pure=True, max_episode_steps=self.limit)

    def reset(self, key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        return (jnp.int32(0), jnp.int32(0)), jnp.zeros(1)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, weft.Transition]:
        place, time = jnp.maximum(state[0] + 2 * action - 1, 0), state[1] + 1
        arrived = place >= self.length
        reward = jnp.where(arrived, 1.0, 0.0) - 0.01 * action
        return (place, time), weft.Transition((place / self.length)[None], reward, arrived, time >= self.limit)


def main(steps: int = 150_000, bonus: float = 0.3, **settings: Any) -> weft.Run:
    run = weft.train(CuriousPPO(bonus=bonus), Corridor(), envs=32, steps=steps, run="fragment", **settings)
    print(f"return {run.summary['return_mean']:.2f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
