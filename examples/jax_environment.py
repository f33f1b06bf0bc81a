"""Another environment: the ship of gymnasium_environment.py in JAX, which compiles with the algorithm to one program.

python examples/jax_environment.py
weft train ppo examples.jax_environment:Docking --steps 300_000 --env.limit 60
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import weft


class Ship(NamedTuple):
    position: jax.Array  # []
    speed: jax.Array  # []
    time: jax.Array  # [] int32


@dataclass(frozen=True)
class Docking:
    """Bring a ship on a line to rest at 0, by thrust to the left, none, or to the right."""

    limit: int = 60

    @property
    def spec(self) -> weft.EnvSpec:
        return weft.EnvSpec(
            "Docking", weft.Box((2,)), weft.Discrete(3), pure=True, action_mask=True, max_episode_steps=self.limit
        )

    def reset(self, key: jax.Array) -> tuple[Ship, jax.Array]:
        ship = Ship(jax.random.uniform(key, minval=-1.0, maxval=1.0), jnp.float32(0.0), jnp.int32(0))
        return ship, self._look(ship)

    def step(self, ship: Ship, action: jax.Array, key: jax.Array) -> tuple[Ship, weft.Transition]:
        speed = ship.speed + 0.05 * (action - 1)
        ship = Ship(ship.position + speed, speed, ship.time + 1)
        docked = (jnp.abs(ship.position) < 0.1) & (jnp.abs(speed) < 0.075)
        out_of_time = ship.time >= self.limit
        return ship, weft.Transition(self._look(ship), -jnp.abs(ship.position), docked, out_of_time)

    def action_mask(self, ship: Ship) -> jax.Array:
        """No thrust that would make it faster than 0.3."""
        return jnp.abs(ship.speed + 0.05 * jnp.arange(-1, 2)) < 0.3

    def render(self, ship: Ship) -> np.ndarray:
        image = np.full((40, 200, 3), 255, np.uint8)
        image[:, 95:105] = (200, 230, 200)
        at = int(np.clip(100 + 50 * float(ship.position), 5, 195))
        image[15:25, at - 5 : at + 5] = (40, 60, 120)
        return image

    def _look(self, ship: Ship) -> jax.Array:
        return jnp.stack([ship.position, ship.speed])


def main(steps: int = 200_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98)
    run = weft.train(ppo, Docking(), envs=32, steps=steps, run="jax-environment", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
