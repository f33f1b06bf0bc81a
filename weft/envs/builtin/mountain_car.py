"""A weak car between two hills: Gymnasium's MountainCar-v0, step for step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition

MIN_POSITION = -1.2
MAX_POSITION = 0.6
MAX_SPEED = 0.07
GOAL = 0.5
FORCE = 0.001
GRAVITY = 0.0025


class MountainCarState(NamedTuple):
    """One vector instead of two scalars: it is the observation as well, so that auto-reset selects it once."""

    body: jax.Array  # [2] float32: position, velocity
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class MountainCar:
    """Push a car left (0), not (1) or right (2); it must rock itself up the right hill.

    Reward -1 each step. Terminated at the flag; truncated at ``max_episode_steps``. A good policy gets about -105;
    random play all but never arrives: -200.
    """

    max_episode_steps: int = 200

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[2]`` float32 (position, velocity), three actions."""
        low = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
        high = np.array([MAX_POSITION, MAX_SPEED], np.float32)
        return EnvSpec(
            "weft:MountainCar-v0",
            Box((2,), "float32", low, high),
            Discrete(3),
            pure=True,
            max_episode_steps=self.max_episode_steps,
        )

    def reset(self, key: jax.Array) -> tuple[MountainCarState, jax.Array]:
        """At rest, the position uniform in ``[-0.6, -0.4)``."""
        position = jax.random.uniform(key, (), jnp.float32, -0.6, -0.4)
        body = jnp.stack([position, jnp.zeros_like(position)])
        return MountainCarState(body, jnp.zeros((), jnp.int32)), body

    def step(self, state: MountainCarState, action: jax.Array, key: jax.Array) -> tuple[MountainCarState, Transition]:
        """One step; the left wall stops the car dead. ``key`` is not used."""
        position, velocity = state.body
        velocity = velocity + (action.astype(jnp.float32) - 1.0) * FORCE - jnp.cos(3 * position) * GRAVITY
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position <= MIN_POSITION) & (velocity < 0), 0.0, velocity)

        body = jnp.stack([position, velocity])
        time = state.time + 1
        terminated = (position >= GOAL) & (velocity >= 0)
        truncated = time >= self.max_episode_steps
        return MountainCarState(body, time), Transition(body, -jnp.ones((), jnp.float32), terminated, truncated)

    def render(self, state: MountainCarState) -> npt.NDArray[np.uint8]:
        """The valley from the side, ``[200, 300, 3]``."""
        position = float(np.asarray(state.body)[0])
        image = drawing.canvas(200, 300)
        track = np.linspace(MIN_POSITION, MAX_POSITION, 61)
        points = [_on_screen(float(x)) for x in track]
        for start, end in pairwise(points):
            drawing.line(image, start, end, 2, drawing.INK)
        foot_x, foot_y = _on_screen(GOAL)
        drawing.line(image, (foot_x, foot_y), (foot_x, foot_y - 34), 2, drawing.INK)
        drawing.rectangle(image, foot_x - 16, foot_y - 34, foot_x, foot_y - 24, drawing.GREEN)

        x, y = _on_screen(position)
        slope = math.atan2(_on_screen(position + 0.01)[1] - y, _on_screen(position + 0.01)[0] - x)
        along, up = (math.cos(slope), math.sin(slope)), (math.sin(slope), -math.cos(slope))
        body = (x + 9 * up[0], y + 9 * up[1])
        front, back = (body[0] + 9 * along[0], body[1] + 9 * along[1]), (body[0] - 9 * along[0], body[1] - 9 * along[1])
        drawing.line(image, back, front, 9, drawing.RED)
        for side in (-8, 8):
            wheel = (x + side * along[0] + 4 * up[0], y + side * along[1] + 4 * up[1])
            drawing.disc(image, wheel, 4, drawing.INK)
        return image


def _on_screen(position: float) -> tuple[float, float]:
    height = 0.45 * math.sin(3 * position) + 0.55
    return (position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION) * 300, 180 - 130 * height
