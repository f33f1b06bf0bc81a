"""A dataflow of your own: rewards are shaped on their way to learn, by two workers that do nothing else.

Shaping by a potential (Ng et al., 1999): each reward has the change of the potential added, which tells the agent that
it is getting somewhere and changes nothing of what is best.

python examples/relabel.py
weft show examples.relabel:ShapedPPO weft:CartPole-v1 --plan "(env+act)*2 | relabel*2 | learn"
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

PLAN = "(env+act)*2 | relabel*2 | learn"


@dataclass(frozen=True)
class ShapedPPO(weft.PPO):
    """PPO for CartPole, with a potential that is highest where the pole is upright and the cart in the middle."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    weight: float = 1.0

    def graph(self) -> weft.Graph:
        return super().graph().insert("relabel", self.relabel, on="unroll")

    def relabel(self, state: Any, unroll: weft.Unroll) -> tuple[Any, weft.Unroll]:
        """No state in, none out; the unroll with other rewards."""
        before = self.potential(unroll.observation)
        after = jnp.concatenate([before[1:], self.potential(unroll.last_observation)[None]])
        # The observation after an episode's end is the next episode's. Nothing follows a terminated one; of one that
        # was truncated, the last observation is not in the unroll, and its potential is taken to be that before it.
        after = jnp.where(unroll.terminated, 0.0, jnp.where(unroll.truncated, before, after))
        return state, unroll._replace(reward=unroll.reward + self.discount * after - before)

    def potential(self, observation: jax.Array) -> jax.Array:
        """[...] for observations [..., 4]: cart's position and speed, pole's angle and speed."""
        return -self.weight * (jnp.abs(observation[..., 0]) / 2.4 + jnp.abs(observation[..., 2]) / 0.21)


def main(steps: int = 200_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    run = weft.train(ShapedPPO(), "weft:CartPole-v1", plan=plan, envs=32, steps=steps, run="relabel", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
