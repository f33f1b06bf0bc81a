"""Algorithms that go wrong, as a user's module: copied to where the run is started."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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


class _WithMap(weft.A2C):
    """A2C with a fragment ``relabel`` on its unrolls, which counts them."""

    host = True

    def graph(self) -> Any:
        init = (lambda key: np.int64(0)) if self.host else (lambda key: jnp.int32(0))
        return super().graph().insert("relabel", self.relabel, init, host=self.host)

    def relabel(self, count: Any, unroll: Any) -> Any:
        """As it is."""
        return count + 1, unroll


class RaisesInMap(_WithMap):
    """Host code that goes wrong at its fourth message."""

    def relabel(self, count: Any, unroll: Any) -> Any:
        if count == 3:
            raise ValueError("no such label")
        return count + 1, unroll


class RaisesInPureMap(_WithMap):
    """A pure map that goes wrong at its fourth message, when everything is compiled."""

    host = False

    def relabel(self, count: Any, unroll: Any) -> Any:
        return _checked(_fourth, count) + 1, unroll


class CannotBeTraced(_WithMap):
    """A pure map that goes wrong as it is compiled for a share of the environments."""

    host = False

    def relabel(self, count: Any, unroll: Any) -> Any:
        return count + 1, unroll._replace(reward=unroll.reward + np.zeros((self.unroll, 8), np.float32))


class HangsInMap(_WithMap):
    """Host code; the first to come to its fourth message sleeps for an hour, then never again."""

    def relabel(self, count: Any, unroll: Any) -> Any:
        if count == 3 and _first("hung"):
            time.sleep(3600)
        return count + 1, unroll


class OtherShape(_WithMap):
    """Host code whose fourth message is shorter than it said."""

    def relabel(self, count: Any, unroll: Any) -> Any:
        return count + 1, unroll if count < 3 else unroll._replace(reward=unroll.reward[1:])


class OtherDtype(_WithMap):
    """Host code whose rewards are doubles, which it did not say."""

    def relabel(self, count: Any, unroll: Any) -> Any:
        return count + 1, unroll._replace(reward=unroll.reward.astype(np.float64))


def _first(what: str) -> bool:
    """Whether nobody has said ``what`` before, in any process."""
    try:
        Path(what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
