"""A dataflow of your own: two teams in one environment, each with a policy and a learner of its own.

Red chases blue around a ring of cells. What one wins the other loses. Blue is as fast as red but stumbles at times, so
that red can always catch it, and each team has to learn against another that learns.

python examples/two_teams.py
weft show examples.two_teams:TwoTeams examples.two_teams:Chase --plan "env*2 | act.* | learn.*"
"""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import weft

PLAN = "(env+act.red+act.blue)*2 | learn.red | learn.blue"
RED = weft.PPO(learning_rate=2e-3, discount=0.97)
BLUE = weft.A2C(learning_rate=2e-3, discount=0.97)


class Ring(NamedTuple):
    red: jax.Array  # [] int32: its cell
    blue: jax.Array  # [] int32
    time: jax.Array  # [] int32


@dataclass(frozen=True)
class Chase:
    """Observations, actions and rewards are dicts by team; an episode's end is everybody's."""

    cells: int = 12
    limit: int = 40
    stumbles: float = 0.4  # how often blue stays where it is

    @property
    def spec(self) -> weft.EnvSpec:
        team = weft.EnvSpec("Chase", weft.Box((2,)), weft.Discrete(3), pure=True)  # one cell back, none, one on
        return weft.EnvSpec.of_teams("Chase", {"red": team, "blue": team}, max_episode_steps=self.limit)

    def reset(self, key: jax.Array) -> tuple[Ring, dict[str, jax.Array]]:
        ring = Ring(jnp.int32(0), jax.random.randint(key, (), 2, self.cells - 1), jnp.int32(0))
        return ring, self.look(ring)

    def step(self, ring: Ring, action: dict[str, jax.Array], key: jax.Array) -> tuple[Ring, weft.Transition]:
        red = (ring.red + action["red"] - 1) % self.cells
        stays = jax.random.bernoulli(key, self.stumbles)
        blue = jnp.where(stays, ring.blue, (ring.blue + action["blue"] - 1) % self.cells)
        crossed = (red == ring.blue) & (blue == ring.red)
        caught = (red == blue) | crossed
        ring = Ring(red, blue, ring.time + 1)
        won = jnp.where(caught, 1.0, -0.05)  # every step that blue is free costs red a little
        reward = {"red": won, "blue": -won}
        return ring, weft.Transition(self.look(ring), reward, caught, ring.time >= self.limit)

    def look(self, ring: Ring) -> dict[str, jax.Array]:
        """To each team where the other is: the angle between them, as sine and cosine."""
        angle = 2 * jnp.pi * (ring.blue - ring.red) / self.cells
        seen = jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        return {"red": seen, "blue": seen * jnp.array([-1.0, 1.0])}


@dataclass(frozen=True)
class TwoTeams(weft.Algorithm):
    """An algorithm for each team. They may differ in everything but the length of their unrolls."""

    unroll: int = 32
    red: weft.Algorithm = RED
    blue: weft.Algorithm = BLUE

    def graph(self) -> weft.Graph:
        teams = {"red": self.red, "blue": self.blue}
        return weft.several_policies(
            {team: algorithm.with_fields(unroll=self.unroll) for team, algorithm in teams.items()}, self.spec
        )


def main(steps: int = 300_000, plan: str = PLAN, **settings: Any) -> weft.Run:
    run = weft.train(TwoTeams(), Chase(), plan=plan, envs=32, steps=steps, run="two-teams", **settings)
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    print(f"return {last['return_mean/red']:.2f} of red, {last['return_mean/blue']:.2f} of blue, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
