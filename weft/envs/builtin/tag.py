"""Adversaries that hunt faster agents around obstacles: the task simple_tag of MPE, for teams of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError
from weft.core.specs import Box, EnvSpec
from weft.envs.builtin import drawing, particles
from weft.envs.protocol import Transition

NAME = "weft:Tag-v0"
OBSTACLE = 0.2  # radius
CATCH = 10.0  # what a touch is worth


class Kind(NamedTuple):
    """What the members of a team can do."""

    radius: float
    push: float  # force of an action
    fastest: float  # speed


ADVERSARY, AGENT = Kind(0.075, 3.0, 1.0), Kind(0.05, 4.0, 1.3)


class TagState(NamedTuple):
    """``A`` members of both teams, adversaries first."""

    position: jax.Array  # [A, 2] float32
    velocity: jax.Array  # [A, 2] float32
    obstacles: jax.Array  # [O, 2] float32
    free: jax.Array  # [agents] bool: which have not been caught; all of them, unless the caught leave
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Tag:
    """Two teams, ``adversary`` and ``agent``: the first hunt the second, who are smaller and faster.

    Every step each agent loses 10 for each adversary that touches it, and more the farther it is outside the square
    (from nine tenths of its half side on); each adversary gets 10 for each touch, its own or another's. Truncated after
    ``horizon`` steps. Physics, rewards and observations are those of mpe2's ``simple_tag_v3``, which a test checks step
    by step; with ``sees``, those of its ``num_agent_neighbors``.

    With ``leave``, which MPE does not have, an agent that was touched is gone until the episode ends, so that the set
    of agents changes; with all of them gone the episode terminates.

    Teams of thousands need room and a view of fixed size: ``Tag(adversaries=900, agents=100, half_side=16.0, sees=6)``.
    Time grows with the square of their number.

    With the defaults random play gives an adversary about 4 and the agent about -16, most of that for being outside;
    adversaries that go straight for an agent that plays randomly get about 44.
    """

    adversaries: int = 3
    agents: int = 1
    obstacles: int = field(default=2, metadata={"least": 0})
    horizon: int = 25
    continuous: bool = False  # actions are five strengths instead of one of five pushes
    sees: int | None = None  # how many of the nearest others a member sees; None: all
    leave: bool = False  # an agent that was caught is gone until the episode ends
    half_side: float = 1.0  # of the square in which all begin

    def __post_init__(self) -> None:
        numbers = {"adversaries": self.adversaries, "agents": self.agents, "horizon": self.horizon}
        particles.checked(NAME, {name: (value, 1) for name, value in numbers.items()})
        particles.checked(NAME, {"obstacles": (self.obstacles, 0)})
        if self.sees is not None:
            particles.checked(NAME, {"sees": (self.sees, 1)})
        if not self.half_side > 0:
            raise ConfigError(f"environment {NAME!r}: half_side must be more than 0, got {self.half_side!r}")

    @property
    def spec(self) -> EnvSpec:
        """Two groups. Each member sees its velocity and position, and from there the obstacles and the others.

        Adversaries ``[4 + 2 O + 2 (A - 1) + 2 P]`` float32 for ``O`` obstacles, ``A`` members of both teams and ``P``
        agents, whose velocities come last; agents two less, their own velocity. With ``sees``, all
        ``[4 + 2 O + 4 sees]``: the nearest, zeros where there are fewer, and for the velocities of adversaries.
        ``state`` is ``[4 A + 2 O]``: velocities, positions, obstacles; with ``leave`` ``P`` more: who is there.
        """
        everyone = self.adversaries + self.agents
        state = Box((4 * everyone + 2 * self.obstacles + self.agents * self.leave,))

        def team(name: str, count: int, velocities: int) -> EnvSpec:
            others = 2 * (everyone - 1) + 2 * velocities if self.sees is None else 4 * self.sees
            seen = Box((4 + 2 * self.obstacles + others,))
            one = EnvSpec(NAME, seen, particles.action_space(self.continuous), pure=True)
            changing = self.leave and name == "agent"
            names = [f"{name}_{i}" for i in range(count)]
            limit = self.horizon
            return EnvSpec.of_agents(NAME, one, names, state=state, changing=changing, max_episode_steps=limit)

        hunted = team("agent", self.agents, self.agents - 1)
        teams = {"adversary": team("adversary", self.adversaries, self.agents), "agent": hunted}
        return EnvSpec.of_teams(NAME, teams, max_episode_steps=self.horizon)

    def reset(self, key: jax.Array) -> tuple[TagState, dict[str, Any]]:
        """All at rest, anywhere in the square; obstacles not quite to its border."""
        ours, theirs = jax.random.split(key)
        everyone = (self.adversaries + self.agents, 2)
        position = self.half_side * jax.random.uniform(ours, everyone, jnp.float32, -1.0, 1.0)
        obstacles = self.half_side * jax.random.uniform(theirs, (self.obstacles, 2), jnp.float32, -0.9, 0.9)
        free, start = jnp.ones(self.agents, jnp.bool_), jnp.zeros((), jnp.int32)
        state = TagState(position, jnp.zeros_like(position), obstacles, free, start)
        return state, self._observe(state)

    def step(self, state: TagState, action: dict[str, jax.Array], key: jax.Array) -> tuple[TagState, Transition]:
        """Both teams push at once; ``key`` is not used."""
        there, size = self._there(state), self._each("radius")
        force = jnp.concatenate([k.push * particles.pushes(action[team]) for team, k in self._kinds])
        force = force + particles.contact(state.position, size, state.position, size, among=True, there=there)
        rocks = np.full(self.obstacles, OBSTACLE)
        force = force + particles.contact(state.position, size, state.obstacles, rocks)
        position, velocity = particles.moved(state.position, state.velocity, force, self._each("fastest"))
        if there is not None:
            position = jnp.where(there[:, None], position, state.position)
            velocity = jnp.where(there[:, None], velocity, 0.0)

        split = self.adversaries
        touched = particles.touching(position[split:], size[split:], position[:split], size[:split])
        if self.leave:
            touched = touched & state.free[:, None]
        touches = jnp.sum(touched, axis=1, dtype=jnp.float32)  # [agents]
        outside = jnp.sum(_outside(jnp.abs(position[split:]) / self.half_side), axis=1)
        lost = -CATCH * touches - (jnp.where(state.free, outside, 0.0) if self.leave else outside)
        reward = {"adversary": jnp.full(split, CATCH * jnp.sum(touches)), "agent": lost}

        free = state.free & (touches == 0) if self.leave else state.free
        state = TagState(position, velocity, state.obstacles, free, state.time + 1)
        return state, Transition(self._observe(state), reward, ~jnp.any(free), state.time >= self.horizon)

    def render(self, state: TagState) -> npt.NDArray[np.uint8]:
        """The square and half as much around it, ``[300, 300, 3]``: obstacles grey, adversaries red, agents green."""
        image, scale = drawing.canvas(300, 300), 100 / self.half_side

        def disc(point: npt.NDArray[np.float32], radius: float, colour: drawing.Colour) -> None:
            drawing.disc(image, (150 + scale * point[0], 150 - scale * point[1]), max(scale * radius, 1), colour)

        for point in np.asarray(state.obstacles):
            disc(point, OBSTACLE, drawing.GREY)
        position, free = np.asarray(state.position), np.asarray(state.free)
        for point in position[: self.adversaries]:
            disc(point, ADVERSARY.radius, drawing.RED)
        for point in position[self.adversaries :][free]:
            disc(point, AGENT.radius, drawing.GREEN)
        return image

    @property
    def _kinds(self) -> tuple[tuple[str, Kind], tuple[str, Kind]]:
        return ("adversary", ADVERSARY), ("agent", AGENT)

    def _each(self, what: str) -> particles.Sizes:
        """A number of every member's kind, ``[A]``."""
        counts = self.adversaries, self.agents
        return np.repeat(np.array([getattr(kind, what) for _, kind in self._kinds]), counts)

    def _there(self, state: TagState) -> jax.Array | None:
        """Who takes part, ``[A]`` bool; None where all always do."""
        return jnp.concatenate([jnp.ones(self.adversaries, jnp.bool_), state.free]) if self.leave else None

    def _observe(self, state: TagState) -> dict[str, Any]:
        there, split = self._there(state), self.adversaries
        position = state.position
        everyone = len(position)
        exists = jnp.ones(everyone, jnp.bool_) if there is None else there
        runs = np.arange(everyone) >= split  # whose velocity is seen
        rocks = (state.obstacles[None] - position[:, None]).reshape(everyone, -1)
        if self.sees is None:
            index = jnp.asarray(particles.others_of(everyone))
            known = exists[index]
            hunted = _others_that_run(split, self.agents)
            fast = [jnp.where(exists[i][..., None], state.velocity[i], 0.0) for i in hunted]
        else:
            index, found = particles.nearest(position, position, self.sees, among=True, there=there)
            known = found
            seen = (jnp.asarray(runs)[index] & found)[..., None]
            both = jnp.where(seen, state.velocity[index], 0.0)
            fast = [both[:split], both[split:]]
        others = jnp.where(known[..., None], position[index] - position[:, None], 0.0).reshape(everyone, -1)
        own = jnp.concatenate([state.velocity, position, rocks, others], axis=1)
        parts = [state.velocity, position, state.obstacles, *([state.free] if self.leave else [])]
        whole = jnp.concatenate([x.reshape(-1).astype(position.dtype) for x in parts])

        def view(rows: jax.Array, velocities: jax.Array) -> dict[str, jax.Array]:
            return {"agents": jnp.concatenate([rows, velocities.reshape(len(rows), -1)], axis=1), "state": whole}

        hunters, prey = view(own[:split], fast[0]), view(own[split:], fast[1])
        if self.leave:  # an agent that is gone sees nothing
            prey["agents"] = jnp.where(state.free[:, None], prey["agents"], 0.0)
            prey["present"] = state.free.astype(jnp.int8)
        return {"adversary": hunters, "agent": prey}


def _others_that_run(split: int, agents: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Whose velocities an adversary sees, ``[split, agents]``; and an agent, ``[agents, agents - 1]``."""
    everyone = np.arange(agents, dtype=np.int32) + split
    return np.tile(everyone, (split, 1)), particles.others_of(agents) + split


def _outside(x: jax.Array) -> jax.Array:
    """What a coordinate costs, of its distance from the middle in half sides: nothing up to 0.9, 10 at most."""
    far = jnp.minimum(jnp.exp(2 * jnp.maximum(x, 1.0) - 2), 10.0)
    return jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, 10 * (x - 0.9), far))
