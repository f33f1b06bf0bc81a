"""Agents that spread out over landmarks: the task simple_spread of MPE, for any number of agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError
from weft.core.specs import Box, EnvSpec
from weft.envs.builtin import drawing, particles
from weft.envs.protocol import Transition

NAME = "weft:Spread-v0"
RADIUS = 0.15  # of an agent
PUSH = 5.0  # force of an action
WORDS = 2  # numbers that an agent could say to each other one; MPE keeps a place for them, and they are always 0


class SpreadState(NamedTuple):
    """Positions are in ``[-1, 1]`` at first, and free from then on."""

    position: jax.Array  # [A, 2] float32
    velocity: jax.Array  # [A, 2] float32
    landmarks: jax.Array  # [A, 2] float32
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Spread:
    """Cover every landmark with an agent, without bumping into one another.

    As many landmarks as ``agents``, all drawn evenly from the square ``[-1, 1]``. Every step each agent gets
    ``1 - local_ratio`` of what all share, minus the sum over the landmarks of the distance to its nearest agent; and
    ``local_ratio`` of its own, -1 for each agent that it touches. Truncated after ``horizon`` steps. Physics, rewards
    and observations are those of mpe2's ``simple_spread_v3``, which a test checks step by step; with ``sees``, those of
    its ``num_agent_neighbors`` and ``num_landmark_neighbors``.

    Return of an agent, with the defaults: random play about -26; agents that each go straight to the landmark that the
    best assignment gives them about -8.3, with a bump or so on the way.
    """

    agents: int = 3
    horizon: int = 25
    local_ratio: float = 0.5  # how much of a reward is the agent's own: bumps; the rest is shared
    continuous: bool = False  # actions are five strengths instead of one of five pushes
    sees: int | None = None  # how many of the nearest agents and landmarks an agent sees; None: all

    def __post_init__(self) -> None:
        particles.checked(NAME, {"agents": (self.agents, 1), "horizon": (self.horizon, 1)})
        if self.sees is not None:
            particles.checked(NAME, {"sees": (self.sees, 1)})
        if not 0 <= self.local_ratio <= 1:
            raise ConfigError(f"environment {NAME!r}: local_ratio must be between 0 and 1, got {self.local_ratio!r}")

    @property
    def spec(self) -> EnvSpec:
        """One group. An agent sees its velocity and position, and from there the landmarks and the other agents.

        ``[4 + 2 L + 4 O]`` float32 for ``L`` landmarks and ``O`` others that it sees: all of them in order, or the
        nearest, zeros where there are fewer. ``state`` is ``[6 A]``: velocities, positions, landmarks.
        """
        landmarks = self.agents if self.sees is None else self.sees
        others = self.agents - 1 if self.sees is None else self.sees
        seen = Box((4 + 2 * landmarks + (2 + WORDS) * others,))
        agent = EnvSpec(NAME, seen, particles.action_space(self.continuous), pure=True)
        names = [f"agent_{i}" for i in range(self.agents)]
        state = Box((6 * self.agents,))
        return EnvSpec.of_agents(NAME, agent, names, state=state, max_episode_steps=self.horizon)

    def reset(self, key: jax.Array) -> tuple[SpreadState, dict[str, Any]]:
        """Agents at rest and landmarks, anywhere in the square."""
        position, landmarks = jax.random.uniform(key, (2, self.agents, 2), jnp.float32, -1.0, 1.0)
        state = SpreadState(position, jnp.zeros_like(position), landmarks, jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, state: SpreadState, action: jax.Array, key: jax.Array) -> tuple[SpreadState, Transition]:
        """All agents push at once; ``key`` is not used."""
        size = np.full(self.agents, RADIUS)
        bumps = particles.contact(state.position, size, state.position, size, among=True)
        force = PUSH * particles.pushes(action) + bumps
        position, velocity = particles.moved(state.position, state.velocity, force)
        state = SpreadState(position, velocity, state.landmarks, state.time + 1)

        uncovered = jnp.sum(jnp.min(particles.distances(state.landmarks, position), axis=1))
        touched = particles.touching(position, size, position, size) & ~np.eye(self.agents, dtype=bool)
        bumped = jnp.sum(touched, axis=1, dtype=jnp.float32)
        reward = -(1 - self.local_ratio) * uncovered - self.local_ratio * bumped
        no = jnp.zeros((), jnp.bool_)
        return state, Transition(self._observe(state), reward, no, state.time >= self.horizon)

    def render(self, state: SpreadState) -> npt.NDArray[np.uint8]:
        """The square and half as much around it, ``[300, 300, 3]``: landmarks dark, agents blue."""
        image = drawing.canvas(300, 300)
        for x, y in np.asarray(state.landmarks):
            drawing.disc(image, (150 + 100 * x, 150 - 100 * y), 5, drawing.INK)
        for x, y in np.asarray(state.position):
            drawing.ring(image, (150 + 100 * x, 150 - 100 * y), 100 * RADIUS, 3, drawing.BLUE)
        return image

    def _observe(self, state: SpreadState) -> dict[str, Any]:
        position, count = state.position, self.agents

        def from_each(points: jax.Array, index: Any, exists: Any = True) -> jax.Array:
            seen = points[index] - position[:, None]
            return jnp.where(jnp.asarray(exists)[..., None], seen, 0.0).reshape(count, -1)

        if self.sees is None:
            others = from_each(position, particles.others_of(count))
            marks = (state.landmarks[None] - position[:, None]).reshape(count, -1)
        else:
            others = from_each(position, *particles.nearest(position, position, self.sees, among=True))
            marks = from_each(state.landmarks, *particles.nearest(position, state.landmarks, self.sees))
        words = jnp.zeros((count, others.shape[1] // 2 * WORDS), position.dtype)
        whole = jnp.concatenate([x.reshape(-1) for x in (state.velocity, position, state.landmarks)])
        return {"agents": jnp.concatenate([state.velocity, position, marks, others, words], axis=1), "state": whole}
