"""Another network: two separate towers of your own, written with jax.numpy alone.

python examples/network.py
weft train examples.network:Towers weft:CartPole-v1 --envs 32 --steps 150_000
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

ACTIONS, OBSERVATION, WIDTH = 2, 4, 64


def init(key: jax.Array) -> dict[str, Any]:
    """Fresh params: a tower for the policy and one for the value."""
    policy, value = jax.random.split(key)
    return {"policy": tower(policy, ACTIONS, scale=0.01), "value": tower(value, 1, scale=1.0)}


def apply(params: dict[str, Any], observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits [2] and a value [] for one observation [4]; Weft batches it."""
    return climb(params["policy"], observation), climb(params["value"], observation)[0]


def tower(key: jax.Array, outputs: int, scale: float) -> list[dict[str, jax.Array]]:
    first, last = jax.random.split(key)
    orthogonal = jax.nn.initializers.orthogonal
    return [
        {"weight": orthogonal(2**0.5)(first, (OBSERVATION, WIDTH)), "bias": jnp.zeros(WIDTH)},
        {"weight": orthogonal(scale)(last, (WIDTH, outputs)), "bias": jnp.zeros(outputs)},
    ]


def climb(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ layers[0]["weight"] + layers[0]["bias"])
    return hidden @ layers[1]["weight"] + layers[1]["bias"]


@dataclass(frozen=True)
class Towers(weft.PPO):
    """PPO with this network under a name of its own, so that the command line finds both."""

    unroll: int = 32
    learning_rate: float = 1e-3
    network: Any = (init, apply)


def main(steps: int = 150_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=1e-3, network=(init, apply))
    run = weft.train(ppo, "weft:CartPole-v1", envs=32, steps=steps, run="network", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
