"""A loss of your own beside PPO's: the network also predicts the observation from its hidden layer.

python examples/auxiliary_loss.py
weft train examples.auxiliary_loss:Reconstructing weft:CartPole-v1 --steps 100_000 --algo.cost 0.1

`PPO.loss` is the whole loss of one minibatch. An override adds to what it gives, and to the metrics, which are logged
with the others (`loss/reconstruction`). `cost` is a field like PPO's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import weft

HIDDEN = 64


def init(key: jax.Array) -> Any:
    keys = jax.random.split(key, 4)
    wide, deep, out, back = (jax.random.normal(k, shape) * 0.3 for k, shape in zip(keys, SHAPES, strict=True))
    return {"wide": wide, "deep": deep * 0.4, "out": out * 0.1, "back": back}


SHAPES = ((4, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 3), (HIDDEN, 4))


def hidden(params: Any, observation: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.tanh(observation @ params["wide"]) @ params["deep"])


def apply(params: Any, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    out = hidden(params, observation) @ params["out"]
    return out[:2], out[2]


@dataclass(frozen=True)
class Reconstructing(weft.PPO):
    """PPO whose hidden layer must tell what was seen."""

    network: Any = (init, apply)
    cost: float = 0.01  # of the error of that

    def loss(self, network: Any, samples: Any, entropy_cost: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        loss, metrics = super().loss(network, samples, entropy_cost)
        seen = samples.steps.observation  # [N, 4]
        error = jnp.mean((hidden(network, seen) @ network["back"] - seen) ** 2)
        return loss + self.cost * error, metrics | {"reconstruction": error}


def main(steps: int = 100_000, **settings: Any) -> weft.Run:
    run = weft.train(Reconstructing(), "weft:CartPole-v1", steps=steps, run="auxiliary", **settings)
    print(f"return {run.summary['return_mean']:.1f}, kept in {run.folder}")
    return run


if __name__ == "__main__":
    main()
