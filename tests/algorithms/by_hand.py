"""Policies and critics whose numbers are known by heart, and batches for them: tests of continuous control."""

import dataclasses

import jax.numpy as jnp
import numpy as np

import weft
from weft.core.specs import Box, EnvSpec
from weft.core.types import Transitions
from weft.nets import Critics, Network, NetworkOutput

SPEC = EnvSpec("toys:Line", Box((1,)), Box((1,), "float32", -2.0, 2.0))
SMALL = {"unroll": 4, "hidden": (8,), "batch": 8, "samples_per_insert": 1.0, "capacity": 256, "learning_begins": 64}


def by_hand(cls, **fields):
    """Logits are params times the observation; a critic with weights ``(w, v)``: ``w * observation + v * action``."""

    class Hand(cls):
        @property
        def net(self):
            def apply(params, carry, observation):
                return NetworkOutput(observation * params, jnp.zeros(observation.shape[:-1]), carry)

            return Network(lambda key: jnp.zeros(self.num_params), apply)

        @property
        def critic_net(self):
            def apply(params, observation, action):
                return jnp.stack([w * observation[..., 0] + v * action[..., 0] for w, v in params])

            return Critics(lambda key: tuple(jnp.array([1.0, 1.0 + k]) for k in range(self.critics)), apply)

    Hand.__name__ = cls.__name__
    return dataclasses.dataclass(frozen=True)(Hand)(**{**SMALL, **fields}).bind(weft.Spec(SPEC, 8, 100, 1000))


def batch_of(*rows, weight=None):
    """Rows of (observation, action, reward, discount, following observation)."""
    now, action, reward, discount, following = (np.array(x, np.float32) for x in zip(*rows, strict=True))
    weight = np.ones_like(now) if weight is None else np.array(weight, np.float32)
    ids = np.zeros((len(now), 2), np.int32)
    return Transitions(now[:, None], action[:, None], reward, discount, following[:, None], weight, ids)
