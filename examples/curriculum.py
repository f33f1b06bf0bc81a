"""A curriculum: evaluation in the run decides how far from its goal the walker begins.

From 24 steps away a walk that knows nothing hardly ever comes to the end of the corridor, and nothing is learned. So it
begins 2 steps away, and goes back by 2 whenever evaluation finds that it arrives nearly always.

python examples/curriculum.py
weft train ppo examples.curriculum:Corridor --curriculum examples.curriculum:further --eval-every 4096 --steps 120000
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

FAR = 24.0


@dataclass(frozen=True)
class Corridor:
    """Walk left or right; 1 at the end, which ends the episode. After 48 steps it is truncated."""

    @property
    def spec(self) -> weft.EnvSpec:
        """The way that is left, as a part of all of it; two actions."""
        return weft.EnvSpec("Corridor", weft.Box((1,)), weft.Discrete(2), pure=True, max_episode_steps=48)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """As far away as can be."""
        return self.reset_with(key, {"distance": jnp.float32(FAR)})

    def reset_with(self, key: jax.Array, options: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        """As far away as the option says."""
        state = (options["distance"], jnp.int32(0))
        return state, self._seen(state)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, weft.Transition]:
        """A step nearer, or further away; ``key`` is not used."""
        left, time = state
        left = jnp.minimum(left + jnp.where(action == 1, -1.0, 1.0), FAR)
        state, there = (left, time + 1), left <= 0
        return state, weft.Transition(self._seen(state), jnp.float32(there), there, ~there & (time + 1 >= 48))

    def _seen(self, state: Any) -> jax.Array:
        return jnp.reshape(state[0] / FAR, (1,)).astype(jnp.float32)


def further(found: Mapping[str, float] | None, options: Mapping[str, float]) -> Mapping[str, float]:
    """The rule: 2 steps away at first, 2 more wherever it arrived in nine of ten episodes."""
    if found is None:
        return {"distance": 2.0}
    if found["eval/return_mean"] < 0.9:
        return options
    return {"distance": min(options["distance"] + 2.0, FAR)}


def main(steps: int = 120_000, **settings: Any) -> weft.Run:
    run = weft.train(
        weft.PPO(unroll=64),
        Corridor(),
        envs=16,
        steps=steps,
        seed=1,
        run="corridor",
        curriculum=further,
        eval_every=2_048,
        eval_episodes=10,
        eval_sample=True,
        **settings,
    )
    away = run.summary["curriculum"]["options"]["distance"]
    print(f"return {run.summary['return_mean']:.2f} from {away:.0f} steps away, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
