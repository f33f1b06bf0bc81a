"""A fragment of your own: a bonus for places that were seldom visited, added to rewards on their way to learn.

In MountainCar every step costs 1 until the goal is met, and a random policy never meets it: without the bonus nothing
is learned. The returns that a run reports are the environment's own, without the bonus.

python examples/fragment.py
weft show examples.fragment:CuriousPPO weft:MountainCar-v0
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
    learning_rate: float = 1e-3
    bonus: float = 2.0
    bins: int = 12  # to each number of an observation

    def graph(self) -> weft.Graph:
        return super().graph().insert("novelty", self.novelty, self.no_visits, on="unroll")

    def no_visits(self, key: jax.Array) -> jax.Array:
        """The fragment's state at the start of a run: visits to each cell."""
        (numbers,) = self.spec.environment.observation.shape
        return jnp.zeros(self.bins**numbers)

    def novelty(self, visits: jax.Array, unroll: weft.Unroll) -> tuple[jax.Array, weft.Unroll]:
        """State and message in, state and message out. Runs once for each unroll, in the program that learns."""
        cells = self.cells(unroll.observation)
        here = jnp.zeros_like(visits).at[cells].add(1.0)
        visits = visits + weft.mean_over_replicas(here)  # so that every replica has the same state
        return visits, unroll._replace(reward=unroll.reward + self.bonus / jnp.sqrt(visits[cells] + 1.0))

    def cells(self, observation: jax.Array) -> jax.Array:
        """The number of the cell, [T, B], of observations [T, B, numbers]; where bounds are infinite: -3 to 3."""
        space = self.spec.environment.observation
        low, high = np.clip(space.low, -3, 3), np.clip(space.high, -3, 3)
        places = jnp.clip((observation - low) / (high - low) * self.bins, 0, self.bins - 1).astype(jnp.int32)
        return places @ self.bins ** np.arange(space.shape[0])


def main(steps: int = 300_000, environment: str = "weft:MountainCar-v0", **settings: Any) -> weft.Run:
    run = weft.train(CuriousPPO(), environment, envs=32, steps=steps, run="fragment", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
