"""Two paddles and a ball: a game for two in which skill orders the players, so that self-play is seen to improve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, Discrete, EnvSpec
from weft.core.types import Array
from weft.envs.builtin import drawing
from weft.envs.builtin.particles import checked
from weft.envs.protocol import Transition

NAME = "weft:Rally-v0"
TEAMS = ("first", "second")

STRIDE = 0.05  # how far a paddle moves in a step; the court is 1 wide and 1 long
HALF = 0.1  # half a paddle's width
SERVE = 0.04  # the ball's speed along the court at the start
QUICKER = 1.08  # what a hit multiplies it by
QUICKEST = 0.12
SLANT = 0.06  # the ball's speed across the court after a hit by a paddle's edge; by its middle it is 0


class RallyState(NamedTuple):
    """Places on the court as the first player sees it: it stands at length 0, the second at length 1."""

    paddles: jax.Array  # [2] float32: across, 0 to 1
    ball: jax.Array  # [2] float32: across and along
    speed: jax.Array  # [2] float32: across and along, for each step
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Rally:
    """Two teams, ``first`` and ``second``, of one player each, move their paddles left (0), not (1) or right (2).

    A ball that a paddle meets at its player's line goes back, quicker, and slanted by where the paddle met it; at the
    walls it bounces. Who lets it pass loses: -1, and 1 for the other, terminated. Truncated after ``horizon`` steps, 0
    for both. Each player sees the court from its own end, so one policy can play either side.

    Random play lets about one ball in five return. The yardstick is ``follow``, which goes where the ball is: it
    returns every ball that it can reach, and aims none, so that a player who slants its returns beats it.
    """

    horizon: int = 200

    def __post_init__(self) -> None:
        checked(NAME, {"horizon": (self.horizon, 1)})

    @property
    def spec(self) -> EnvSpec:
        """Two teams of one player. Each sees ``[6]`` float32: its paddle, the other's, the ball across and along, and
        its speed across and along in units of the quickest; from its own end. Three actions."""
        player = EnvSpec(NAME, Box((6,), "float32", -2.0, 2.0), Discrete(3), pure=True, max_episode_steps=self.horizon)
        return EnvSpec.of_teams(NAME, dict.fromkeys(TEAMS, player), max_episode_steps=self.horizon)

    def reset(self, key: jax.Array) -> tuple[RallyState, dict[str, jax.Array]]:
        """Paddles and ball in the middle; where the ball goes is drawn."""
        draws = jax.random.uniform(key, (2,), minval=-1.0)
        speed = jnp.stack([draws[0] * SLANT / 2, jnp.where(draws[1] < 0, -SERVE, SERVE)])
        middle = jnp.full(2, 0.5, jnp.float32)
        state = RallyState(middle, middle, speed, jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: RallyState, action: dict[str, jax.Array], key: jax.Array) -> tuple[RallyState, Transition]:
        """The paddles move, then the ball; ``key`` is not used."""
        moves = jnp.stack([action[team].astype(jnp.float32) - 1.0 for team in TEAMS]) * jnp.array([1.0, -1.0])
        paddles = jnp.clip(state.paddles + STRIDE * moves, 0.0, 1.0)
        across, along = state.ball + state.speed
        inside = jnp.where(across < 0, -across, jnp.where(across > 1, 2 - across, across))
        drift = jnp.where(inside == across, state.speed[0], -state.speed[0])

        at = jnp.where(along <= 0, 0, 1)  # whose line it is, where it is at one
        arrived = (along <= 0) | (along >= 1)
        off = (inside - paddles[at]) / HALF
        hit = arrived & (jnp.abs(off) <= 1)
        missed = arrived & ~hit
        back = jnp.clip(-state.speed[1] * QUICKER, -QUICKEST, QUICKEST)
        speed = jnp.where(hit, jnp.stack([SLANT * off, back]), jnp.stack([drift, state.speed[1]]))
        line = jnp.where(at == 0, 0.0, 1.0)
        state = RallyState(
            paddles, jnp.stack([inside, jnp.where(arrived, line, along)]), speed.astype(jnp.float32), state.time + 1
        )
        gain = jnp.where(missed, jnp.where(at == 0, -1.0, 1.0), 0.0)
        reward = dict(zip(TEAMS, (gain, -gain), strict=True))
        return state, Transition(_observe(state), reward, missed, ~missed & (state.time >= self.horizon))

    def render(self, state: RallyState) -> npt.NDArray[np.uint8]:
        """The court from above, the first player below: ``[300, 300, 3]``."""
        image = drawing.canvas(300, 300)

        def place(across: float, along: float) -> tuple[float, float]:
            return 25 + 250 * across, 275 - 250 * along

        for side, colour in enumerate((drawing.SKY, drawing.RED)):
            x, y = place(float(state.paddles[side]), float(side))
            drawing.rectangle(image, x - 250 * HALF, y - 5, x + 250 * HALF, y + 5, colour)
        drawing.disc(image, place(float(state.ball[0]), float(state.ball[1])), 8, drawing.ORANGE)
        return image


def follow(observation: Array, key: Array) -> jax.Array:
    """The yardstick, a rule for ``weft.Scripted``: the paddle goes to where the ball is; ``key`` is not used."""
    off = observation[..., 2] - observation[..., 0]
    return jnp.where(off > STRIDE / 2, 2, jnp.where(off < -STRIDE / 2, 0, 1)).astype(jnp.int32)


def _observe(state: RallyState) -> dict[str, jax.Array]:
    """Each player's view: the second one's court is turned round."""
    speed = state.speed / QUICKEST
    first = jnp.concatenate([state.paddles, state.ball, speed])
    second = jnp.concatenate([1.0 - state.paddles[::-1], 1.0 - state.ball, -speed])
    return {"first": first.astype(jnp.float32), "second": second.astype(jnp.float32)}
