"""Algorithms that go wrong, as a user's module: copied to where the run is started."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import weft


class RaisesInLearn(weft.PPO):
    """Goes wrong as its first learn step is compiled."""

    def learn(self, state: Any, batch: Any) -> Any:
        return super().learn(state, batch).no_such_thing


class RaisesLater(weft.PPO):
    """Goes wrong in its fourth learn step, when everything is compiled."""

    def learn(self, state: Any, batch: Any) -> Any:
        state = state._replace(step=_checked(_fourth, state.step))
        return super().learn(state, batch)


class RaisesInAct(weft.PPO):
    """Goes wrong in its first inference."""

    def act(self, params: Any, carry: Any, timestep: Any, key: Any) -> Any:
        observation = _checked(_any, timestep.observation)
        return super().act(params, carry, timestep._replace(observation=observation), key)


def _checked(check: Any, x: Any) -> Any:
    return jax.pure_callback(check, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


def _fourth(step: Any) -> Any:
    if step == 3:
        raise ValueError("the loss fell off")
    return np.asarray(step)


def _any(observation: Any) -> Any:
    raise ValueError("cannot see a thing")
