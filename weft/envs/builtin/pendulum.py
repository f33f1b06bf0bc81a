"""A pendulum swung up by torque: Gymnasium's Pendulum-v1, step for step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition

GRAVITY = 10.0
SECONDS = 0.05  # per step
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TURN = 2 * math.pi


class PendulumState(NamedTuple):
    """Mass and length are 1."""

    angle: jax.Array  # [] float32, radians: 0 is upright; not wrapped, as Gymnasium's
    speed: jax.Array  # [] float32, radians per second
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Pendulum:
    """Turn a pendulum by a torque in ``[-2, 2]`` that is too weak to lift it at once, and hold it upright.

    Reward ``-(angle² + 0.1 speed² + 0.001 torque²)`` of the state before the step. Never terminated; truncated at
    ``max_episode_steps``. A good policy gets about -150; random play about -1,200.
    """

    max_episode_steps: int = 200

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[3]`` float32 (cosine, sine, speed), one torque."""
        high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
        return EnvSpec(
            "weft:Pendulum-v1",
            Box((3,), "float32", -high, high),
            Box((1,), "float32", -MAX_TORQUE, MAX_TORQUE),
            pure=True,
            max_episode_steps=self.max_episode_steps,
        )

    def reset(self, key: jax.Array) -> tuple[PendulumState, jax.Array]:
        """The angle uniform over the circle, the speed in ``[-1, 1)``."""
        angle, speed = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(angle * math.pi, speed, jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: PendulumState, action: jax.Array, key: jax.Array) -> tuple[PendulumState, Transition]:
        """One step of 50 ms by ``action`` (``[1]``, clipped to the bounds); ``key`` is not used."""
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        from_top = state.angle - TURN * jnp.round(state.angle / TURN)
        cost = from_top**2 + 0.1 * state.speed**2 + 0.001 * torque**2

        speed = state.speed + (1.5 * GRAVITY * jnp.sin(state.angle) + 3.0 * torque) * SECONDS
        speed = jnp.clip(speed, -MAX_SPEED, MAX_SPEED)
        time = state.time + 1
        state = PendulumState(state.angle + speed * SECONDS, speed, time)
        never = jnp.zeros((), jnp.bool_)
        return state, Transition(_observe(state), -cost, never, time >= self.max_episode_steps)

    def render(self, state: PendulumState) -> npt.NDArray[np.uint8]:
        """The pendulum around its pivot, ``[240, 240, 3]``."""
        angle = float(state.angle)
        image = drawing.canvas(240, 240)
        pivot = (120.0, 120.0)
        tip = (120 + 90 * math.sin(angle), 120 - 90 * math.cos(angle))
        drawing.disc(image, (120, 30), 4, drawing.PALE)
        drawing.line(image, pivot, tip, 16, drawing.RED)
        drawing.disc(image, pivot, 5, drawing.INK)
        return image


def _observe(state: PendulumState) -> jax.Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
