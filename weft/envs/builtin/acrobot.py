"""A two-link arm swung up by its elbow: Gymnasium's Acrobot-v1, step for step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition

GRAVITY = 9.8
SECONDS = 0.2  # per step
MAX_SPIN_1 = 4 * math.pi
MAX_SPIN_2 = 9 * math.pi
TURN = 2 * math.pi

Motion: TypeAlias = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Two angles and their rates, or the derivatives of these."""


class AcrobotState(NamedTuple):
    """Both links have length 1, mass 1, inertia 1 and their centre of mass in the middle."""

    joints: jax.Array  # [4] float32: angle of link 1 (0 hangs down), of link 2 relative to it, and their rates
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Acrobot:
    """Swing the free end of a hanging two-link arm above the line one link over its pivot.

    The action is the torque at the elbow: -1, 0 or 1. Reward -1 each step and 0 at the step that gets there, which
    terminates; truncated at ``max_episode_steps``. A good policy gets about -80; random play nearly always -500.
    """

    max_episode_steps: int = 500

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[6]`` float32 (cosine and sine of each angle, both rates), three actions."""
        high = np.array([1.0, 1.0, 1.0, 1.0, MAX_SPIN_1, MAX_SPIN_2], np.float32)
        return EnvSpec(
            "weft:Acrobot-v1",
            Box((6,), "float32", -high, high),
            Discrete(3),
            pure=True,
            max_episode_steps=self.max_episode_steps,
        )

    def reset(self, key: jax.Array) -> tuple[AcrobotState, jax.Array]:
        """Angles and rates uniform in ``[-0.1, 0.1)``."""
        joints = jax.random.uniform(key, (4,), jnp.float32, -0.1, 0.1)
        return AcrobotState(joints, jnp.zeros((), jnp.int32)), _observe(*joints)

    def step(self, state: AcrobotState, action: jax.Array, key: jax.Array) -> tuple[AcrobotState, Transition]:
        """One Runge-Kutta step of 0.2 s; ``key`` is not used."""
        torque = action.astype(jnp.float32) - 1.0
        angle_1, angle_2, spin_1, spin_2 = _runge_kutta(tuple(state.joints), torque)
        angle_1 = angle_1 - TURN * jnp.round(angle_1 / TURN)
        angle_2 = angle_2 - TURN * jnp.round(angle_2 / TURN)
        spin_1 = jnp.clip(spin_1, -MAX_SPIN_1, MAX_SPIN_1)
        spin_2 = jnp.clip(spin_2, -MAX_SPIN_2, MAX_SPIN_2)

        time = state.time + 1
        terminated = -jnp.cos(angle_1) - jnp.cos(angle_1 + angle_2) > 1.0
        reward = jnp.where(terminated, 0.0, -1.0)
        state = AcrobotState(jnp.stack([angle_1, angle_2, spin_1, spin_2]), time)
        observation = _observe(angle_1, angle_2, spin_1, spin_2)
        return state, Transition(observation, reward, terminated, time >= self.max_episode_steps)

    def render(self, state: AcrobotState) -> npt.NDArray[np.uint8]:
        """The arm around its pivot, with the line to reach, ``[240, 240, 3]``."""
        angle_1, angle_2, _, _ = (float(v) for v in np.asarray(state.joints))
        image = drawing.canvas(240, 240)
        scale = 52.0
        drawing.line(image, (0, 120 - scale), (240, 120 - scale), 2, drawing.GREEN)
        pivot = (120.0, 120.0)
        elbow = (120 + scale * math.sin(angle_1), 120 + scale * math.cos(angle_1))
        bend = angle_1 + angle_2
        tip = (elbow[0] + scale * math.sin(bend), elbow[1] + scale * math.cos(bend))
        drawing.line(image, pivot, elbow, 12, drawing.BLUE)
        drawing.line(image, elbow, tip, 12, drawing.SKY)
        for joint in (pivot, elbow):
            drawing.disc(image, joint, 6, drawing.YELLOW)
        return image


def _observe(angle_1: jax.Array, angle_2: jax.Array, spin_1: jax.Array, spin_2: jax.Array) -> jax.Array:
    return jnp.stack([jnp.cos(angle_1), jnp.sin(angle_1), jnp.cos(angle_2), jnp.sin(angle_2), spin_1, spin_2])


def _derivatives(motion: Motion, torque: jax.Array) -> Motion:
    """The equations of Sutton and Barto's book, with this arm's lengths, masses and inertias put in."""
    angle_1, angle_2, spin_1, spin_2 = motion
    cos_2, sin_2 = jnp.cos(angle_2), jnp.sin(angle_2)
    d1 = 3.5 + cos_2
    d2 = 1.25 + 0.5 * cos_2
    phi_2 = 0.5 * GRAVITY * jnp.sin(angle_1 + angle_2)
    phi_1 = -(0.5 * spin_2 + spin_1) * spin_2 * sin_2 + 1.5 * GRAVITY * jnp.sin(angle_1) + phi_2
    ratio = d2 / d1
    rate_2 = (torque + ratio * phi_1 - 0.5 * spin_1 * spin_1 * sin_2 - phi_2) / (1.25 - ratio * d2)
    rate_1 = -(d2 * rate_2 + phi_1) / d1
    return spin_1, spin_2, rate_1, rate_2


def _runge_kutta(motion: Motion, torque: jax.Array) -> Motion:
    """Fourth order, one step of ``SECONDS``. Scalars and not a vector, so that all of it fuses into one loop."""

    def moved(rates: Motion, seconds: float) -> Motion:
        a, b, c, d = (m + seconds * r for m, r in zip(motion, rates, strict=True))
        return a, b, c, d

    k1 = _derivatives(motion, torque)
    k2 = _derivatives(moved(k1, SECONDS / 2), torque)
    k3 = _derivatives(moved(k2, SECONDS / 2), torque)
    k4 = _derivatives(moved(k3, SECONDS), torque)
    a, b, c, d = (p + 2 * q + 2 * r + s for p, q, r, s in zip(k1, k2, k3, k4, strict=True))
    return moved((a, b, c, d), SECONDS / 6)
