"""A pole balanced on a cart: Gymnasium's CartPole-v1, step for step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5  # of the pole
FORCE = 10.0
SECONDS = 0.02  # per step
MAX_X = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360


class CartPoleState(NamedTuple):
    """One vector instead of four scalars: it is the observation as well, so that auto-reset selects it once."""

    body: jax.Array  # [4] float32: position, velocity, angle (0 is upright), angular velocity
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class CartPole:
    """Push a cart left (0) or right (1) so that the pole on it stays up.

    Reward 1 each step, the last one included. Terminated where the pole leans over 12 degrees or the cart leaves the
    track; truncated at ``max_episode_steps``. Best return 500; random play gets about 22.
    """

    max_episode_steps: int = 500

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[4]`` float32 with Gymnasium's bounds, two actions."""
        high = np.array([2 * MAX_X, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        return EnvSpec(
            "weft:CartPole-v1",
            Box((4,), "float32", -high, high),
            Discrete(2),
            pure=True,
            max_episode_steps=self.max_episode_steps,
        )

    def reset(self, key: jax.Array) -> tuple[CartPoleState, jax.Array]:
        """Every number uniform in ``[-0.05, 0.05)``."""
        body = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return CartPoleState(body, jnp.zeros((), jnp.int32)), body

    def step(self, state: CartPoleState, action: jax.Array, key: jax.Array) -> tuple[CartPoleState, Transition]:
        """One Euler step of 20 ms; ``key`` is not used."""
        x, velocity, angle, spin = state.body
        push = jnp.where(action == 1, FORCE, -FORCE)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        shared = (push + POLE_MASS * HALF_LENGTH * spin * spin * sin) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS / TOTAL_MASS * cos * cos)
        spin_rate = (GRAVITY * sin - cos * shared) / inertia
        acceleration = shared - POLE_MASS * HALF_LENGTH / TOTAL_MASS * spin_rate * cos

        x, angle = x + SECONDS * velocity, angle + SECONDS * spin
        velocity, spin = velocity + SECONDS * acceleration, spin + SECONDS * spin_rate
        body = jnp.stack([x, velocity, angle, spin])
        time = state.time + 1
        terminated = (jnp.abs(x) > MAX_X) | (jnp.abs(angle) > MAX_ANGLE)
        truncated = time >= self.max_episode_steps
        return CartPoleState(body, time), Transition(body, jnp.ones((), jnp.float32), terminated, truncated)

    def render(self, state: CartPoleState) -> npt.NDArray[np.uint8]:
        """The track from the side, ``[200, 300, 3]``."""
        x, _, angle, _ = (float(v) for v in np.asarray(state.body))
        image = drawing.canvas(200, 300)
        scale = 300 / (2 * MAX_X)
        axle = (150 + x * scale, 150.0)
        drawing.line(image, (0, 162), (300, 162), 2, drawing.GREY)
        drawing.rectangle(image, axle[0] - 20, 150, axle[0] + 20, 170, drawing.INK)
        length = 2 * HALF_LENGTH * scale
        tip = (axle[0] + length * math.sin(angle), axle[1] - length * math.cos(angle))
        drawing.line(image, axle, tip, 8, drawing.ORANGE)
        drawing.disc(image, axle, 4, drawing.BLUE)
        return image
