"""Hiders and seekers on a plane with boxes: a first step to hide-and-seek (Baker et al., arXiv 1909.07528).

All bodies are squares along the axes and do not turn. Sight is all around, from centre to centre, and boxes block it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, SpaceTree
from weft.envs.builtin import drawing, squares
from weft.envs.builtin.particles import PUSHES, TICK, checked, others_of
from weft.envs.protocol import Transition

NAME = "weft:HideAndSeek-v0"
AGENT, BOX, CELL = 0.08, 0.2, 0.5  # half sides of bodies; the side of a cell, in which at most one body begins
PUSH = 3.0  # force of an action
LIGHTNESS = {"agent": 1.0, "box": 2.0}  # how much of an overlap a body makes good, beside the other
SLIDE = {"agent": 0.75, "box": 0.25}  # the part of a velocity that a step leaves
REACH = 0.15  # how far the side of a box may be from an agent that locks it
LOCK, UNLOCK = 5, 6  # actions after the five pushes
FREE, HIDERS, SEEKERS = 0, 1, 2  # who has locked a box


class HideAndSeekState(NamedTuple):
    """``A`` agents, hiders first, then ``B`` boxes: ``N`` bodies."""

    position: jax.Array  # [N, 2] float32
    velocity: jax.Array  # [N, 2] float32
    locked: jax.Array  # [B] int32: FREE, HIDERS or SEEKERS
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class HideAndSeek:
    """Two teams, ``hider`` and ``seeker``: after a time to prepare, hiders are to be seen by no seeker.

    An action pushes the agent nowhere (0), left, right, down or up (1 to 4), or locks (5) or unlocks (6) the nearest
    box within reach. A box that an agent walks into is pushed on; a locked one stays, and only the team that locked it
    can unlock it. For the first ``preparation`` of the ``horizon`` there is no reward and seekers cannot do anything.
    From then on every step gives each hider 1 and each seeker -1 if no hider is seen by any seeker, and the reverse if
    one is. Truncated after ``horizon`` steps. Bodies begin in different cells of a square that grows with their number.

    Returns are between -48 and 48 by default. Random play gives hiders about -41: one of two hiders is seen by one of
    two seekers most of the time. A hider in a corner behind three locked boxes is never seen.
    """

    hiders: int = 2
    seekers: int = 2
    boxes: int = 8
    horizon: int = 80
    preparation: float = 0.4  # part of the horizon

    def __post_init__(self) -> None:
        numbers = {"hiders": self.hiders, "seekers": self.seekers, "boxes": self.boxes, "horizon": self.horizon}
        checked(NAME, {name: (value, 1) for name, value in numbers.items()})
        if not 0 <= self.preparation < 1:
            raise ConfigError(f"environment {NAME!r}: preparation must be from 0 to below 1, got {self.preparation!r}")

    @property
    def spec(self) -> EnvSpec:
        """Two groups; what an agent sees is a dict of entities with masks, so that attention can read it.

        ``self`` ``[7]``: velocity, position, whether it seeks, how much of the preparation is left, and of the episode.
        ``others`` ``[A - 1, 5]``: from here, velocity, whether of its team. ``boxes`` ``[B, 6]``: from here, velocity,
        locked by its team, by the other. ``others_seen`` and ``boxes_seen`` are 1 for those in sight; those that are
        not are zeros. Seven actions. ``state`` ``[4 N + 2 B + 1]`` has everything: velocities, positions, locks, time.
        """
        others = self._agents - 1
        seen: dict[str, SpaceTree] = {
            "self": Box((7,)),
            "others": Box((others, 5)),
            "others_seen": MultiBinary(others),
            "boxes": Box((self.boxes, 6)),
            "boxes_seen": MultiBinary(self.boxes),
        }
        state = Box((4 * (self._agents + self.boxes) + 2 * self.boxes + 1,))
        one = EnvSpec(NAME, seen, Discrete(7), pure=True)

        def team(name: str, count: int) -> EnvSpec:
            names = [f"{name}_{i}" for i in range(count)]
            return EnvSpec.of_agents(NAME, one, names, state=state, max_episode_steps=self.horizon)

        teams = {"hider": team("hider", self.hiders), "seeker": team("seeker", self.seekers)}
        return EnvSpec.of_teams(NAME, teams, max_episode_steps=self.horizon)

    @property
    def half_side(self) -> float:
        """Half the side of the square that bodies cannot leave: it has twice as many cells as bodies, or more."""
        return self._cells * CELL / 2

    @property
    def prepares(self) -> int:
        """How many steps the preparation has."""
        return int(self.preparation * self.horizon)

    def reset(self, key: jax.Array) -> tuple[HideAndSeekState, dict[str, Any]]:
        """All at rest, each in a cell of its own, and not quite in its middle."""
        cell_key, jitter_key = jax.random.split(key)
        count = self._agents + self.boxes
        cell = jax.random.permutation(cell_key, self._cells**2)[:count]
        place = jnp.stack([cell % self._cells, cell // self._cells], axis=1).astype(jnp.float32)
        jitter = jax.random.uniform(jitter_key, (count, 2), jnp.float32, -0.04, 0.04)
        position = (place + 0.5) * CELL - self.half_side + jitter
        locked, start = jnp.zeros(self.boxes, jnp.int32), jnp.zeros((), jnp.int32)
        state = HideAndSeekState(position, jnp.zeros_like(position), locked, start)
        return state, self._observe(state, self._sight(position))

    def step(
        self, state: HideAndSeekState, action: dict[str, jax.Array], key: jax.Array
    ) -> tuple[HideAndSeekState, Transition]:
        """All act at once: locks first, then everybody moves; ``key`` is not used."""
        still = state.time < self.prepares
        sought = jnp.where(still, 0, action["seeker"])
        chosen = jnp.concatenate([action["hider"], sought]).astype(jnp.int32)  # [A]
        locked = self._locked(state, chosen)
        agents = self._agents

        push = jnp.asarray(PUSHES)[jnp.where(chosen < len(PUSHES), chosen, 0)] * PUSH
        slide, light = self._each(SLIDE), self._each(LIGHTNESS)
        velocity = (state.velocity * slide[:, None]).at[:agents].add(push * TICK)
        stays = jnp.concatenate([self._seeks & still, locked != FREE])  # [N]
        moved = state.position + jnp.where(stays[:, None], 0.0, velocity) * TICK
        position = squares.apart(moved, self._halves, jnp.where(stays, 0.0, light), self.half_side)
        state = HideAndSeekState(position, (position - state.position) / TICK, locked, state.time + 1)

        sight = self._sight(position)
        found = jnp.any(sight[self.hiders : agents, : self.hiders])
        hidden = jnp.where(still, 0.0, jnp.where(found, -1.0, 1.0))
        reward = {"hider": jnp.full(self.hiders, hidden), "seeker": jnp.full(self.seekers, -hidden)}
        no = jnp.zeros((), jnp.bool_)
        return state, Transition(self._observe(state, sight), reward, no, state.time >= self.horizon)

    def render(self, state: HideAndSeekState) -> npt.NDArray[np.uint8]:
        """The square, ``[300, 300, 3]``: hiders blue, seekers red, boxes yellow, with the mark of who locked them."""
        image, scale = drawing.canvas(300, 300), 150 / self.half_side
        locks = {FREE: drawing.YELLOW, HIDERS: drawing.SKY, SEEKERS: drawing.ORANGE}
        kinds = [drawing.BLUE] * self.hiders + [drawing.RED] * self.seekers + [drawing.YELLOW] * self.boxes
        marks = [None] * self._agents + [locks[int(who)] for who in np.asarray(state.locked)]
        for (x, y), half, colour, mark in zip(np.asarray(state.position), self._halves, kinds, marks, strict=True):
            centre, size = (150 + scale * float(x), 150 - scale * float(y)), scale * float(half)
            for extent, paint in ((size, colour), (size / 2, mark or colour)):
                left, top = centre[0] - extent, centre[1] - extent
                drawing.rectangle(image, left, top, left + 2 * extent, top + 2 * extent, paint)
        return image

    @property
    def _agents(self) -> int:
        return self.hiders + self.seekers

    @property
    def _cells(self) -> int:
        return max(5, int(np.ceil(np.sqrt(2 * (self._agents + self.boxes)))))

    @property
    def _seeks(self) -> npt.NDArray[np.bool_]:
        """Which agents do, ``[A]``."""
        return np.arange(self._agents) >= self.hiders

    @property
    def _halves(self) -> npt.NDArray[np.float32]:
        """Half the side of each body, ``[N]``."""
        return self._each({"agent": AGENT, "box": BOX})

    def _each(self, what: dict[str, float]) -> npt.NDArray[np.float32]:
        """A number of every body's kind, ``[N]``."""
        return np.repeat(np.array([what["agent"], what["box"]], np.float32), (self._agents, self.boxes))

    def _locked(self, state: HideAndSeekState, chosen: jax.Array) -> jax.Array:
        """Who has locked each box after the agents' actions, ``[B]``; of two that want the same free one, a hider."""
        agents = self._agents
        away = jnp.abs(state.position[:agents, None] - state.position[None, agents:])  # [A, B, 2]
        gap = jnp.max(away, axis=-1) - (AGENT + BOX)
        nearest = (jnp.arange(self.boxes) == jnp.argmin(gap, axis=1)[:, None]) & (gap < REACH)
        team = np.where(self._seeks, SEEKERS, HIDERS)
        opens = jnp.any(nearest & (chosen == UNLOCK)[:, None] & (state.locked == team[:, None]), axis=0)
        kept = jnp.where(opens, FREE, state.locked)
        wants = nearest & (chosen == LOCK)[:, None]
        taken = jnp.where(wants[: self.hiders].any(0), HIDERS, jnp.where(wants[self.hiders :].any(0), SEEKERS, FREE))
        return jnp.where((state.locked == FREE) & (taken != FREE), taken, kept).astype(jnp.int32)

    def _sight(self, position: jax.Array) -> jax.Array:
        """Which bodies each agent sees, ``[A, N]`` bool; a box does not hide itself."""
        agents = self._agents
        blocked = squares.crossed(position[:agents], position, position[agents:], BOX)  # [A, N, B]
        own = np.arange(agents + self.boxes)[:, None] == agents + np.arange(self.boxes)
        return ~jnp.any(blocked & ~own, axis=-1)

    def _observe(self, state: HideAndSeekState, sight: jax.Array) -> dict[str, Any]:
        agents, index = self._agents, others_of(self._agents)
        position, velocity = state.position, state.velocity
        seeks = self._seeks.astype(np.float32)
        left = jnp.maximum(1 - state.time / max(self.prepares, 1), 0.0), 1 - state.time / self.horizon
        own = jnp.broadcast_to(jnp.stack(left).astype(jnp.float32), (agents, 2))
        own = jnp.concatenate([velocity[:agents], position[:agents], seeks[:, None], own], axis=1)

        def entities(of: Any, rest: Any, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
            """``[A, K, ...]`` of the bodies ``of`` (``[A, K]``), zeros where they are not seen; and the mask."""
            parts = [position[of] - position[:agents, None], velocity[of], rest]
            return jnp.where(seen[..., None], jnp.concatenate(parts, axis=-1), 0.0), seen.astype(jnp.int8)

        friend = jnp.asarray(self._seeks[index] == self._seeks[:, None], jnp.float32)[..., None]
        boxes = np.tile(np.arange(agents, agents + self.boxes), (agents, 1))
        team = np.where(self._seeks, SEEKERS, HIDERS)[:, None]
        locks = jnp.stack([state.locked == team, (state.locked != team) & (state.locked != FREE)], axis=-1)
        others, others_seen = entities(index, friend, jnp.take_along_axis(sight, jnp.asarray(index), axis=1))
        things, things_seen = entities(boxes, locks.astype(jnp.float32), sight[:, agents:])
        seen = {"self": own, "others": others, "others_seen": others_seen, "boxes": things, "boxes_seen": things_seen}
        whole = [velocity, position, state.locked == HIDERS, state.locked == SEEKERS, left[1]]
        flat = jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in whole])
        rows = {"hider": slice(0, self.hiders), "seeker": slice(self.hiders, agents)}
        return {
            name: {"agents": jax.tree.map(lambda x, row=row: x[row], seen), "state": flat} for name, row in rows.items()
        }
