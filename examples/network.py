"""Another network: two separate towers of your own, written with jax.numpy alone.

python examples/network.py
weft train examples.network:Towers weft:CartPole-v1 --envs 32 --steps 200_000
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
    sizes, scales = (OBSERVATION, WIDTH, WIDTH, outputs), (2**0.5, 2**0.5, scale)
    return [
        {"weight": jax.nn.initializers.orthogonal(scales[i])(k, sizes[i : i + 2]), "bias": jnp.zeros(sizes[i + 1])}
        for i, k in enumerate(jax.random.split(key, 3))
    ]


def climb(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


@dataclass(frozen=True)
class Towers(weft.PPO):
    """PPO with this network under a name of its own, so that the command line finds both."""

    unroll: int = 32
    learning_rate: float = 2e-3
    discount: float = 0.98
    network: Any = (init, apply)


def main(steps: int = 200_000, **settings: Any) -> weft.Run:
    ppo = weft.PPO(unroll=32, learning_rate=2e-3, discount=0.98, network=(init, apply))
    run = weft.train(ppo, "weft:CartPole-v1", envs=32, steps=steps, run="network", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
