"""Rock, paper, scissors with wins of unequal worth: its equilibrium is known, so that self-play can be judged."""

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

NAME = "weft:Roshambo-v0"
STAKES = np.array([(1, 2, 3), (3, 1, 2), (2, 3, 1)], np.float32)
"""``[3, 3]``: the three games; what a win with rock, paper and scissors is worth in each."""

TEAMS = ("first", "second")


class RoshamboState(NamedTuple):
    """What both see, and for pictures what they did last."""

    game: jax.Array  # [] int32: the row of STAKES that is played now
    moves: jax.Array  # [2] int32: the last round's; -1 before the first
    time: jax.Array  # [] int32: rounds made


@dataclass(frozen=True)
class Roshambo:
    """Two teams, ``first`` and ``second``, of one player each, choose rock (0), paper (1) or scissors (2) at once.

    Who wins a round gets what its move is worth, and the other loses as much; the same move gives 0. Each round one of
    three games is drawn evenly and shown to both: wins with rock, paper and scissors are worth 1, 2, 3; or 3, 1, 2; or
    2, 3, 1. Truncated after ``rounds`` rounds. Both sides see and can do the same, so one policy can play either.

    The equilibrium, the only one: where wins are worth ``r, p, s``, play rock, paper and scissors with probabilities
    ``s, r, p`` over their sum; so 1/2, 1/6, 1/3 in the first game. Its value is 0. Proof: against it rock gets
    ``-p · r + r · p = 0``, paper ``p · s - s · p = 0``, scissors ``-r · s + s · r = 0`` (over the sum), so no reply
    gains; and the pay-offs have rank 2, so that no other strategy makes all three 0. Uniform play loses 2/3 a round to
    its best reply (``exploitability``). Rounds do not depend on each other, so it is the same whatever ``rounds`` is.
    """

    rounds: int = 8

    def __post_init__(self) -> None:
        checked(NAME, {"rounds": (self.rounds, 1)})

    @property
    def spec(self) -> EnvSpec:
        """Two teams of one player; each sees ``[3]`` float32, which game is played, one-hot. Three actions."""
        limit = self.rounds
        player = EnvSpec(NAME, Box((3,), "float32", 0.0, 1.0), Discrete(3), pure=True, max_episode_steps=limit)
        return EnvSpec.of_teams(NAME, dict.fromkeys(TEAMS, player), max_episode_steps=limit)

    def reset(self, key: jax.Array) -> tuple[RoshamboState, dict[str, jax.Array]]:
        """The first round's game."""
        state = RoshamboState(_draw(key), jnp.full(2, -1, jnp.int32), jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(
        self, state: RoshamboState, action: dict[str, jax.Array], key: jax.Array
    ) -> tuple[RoshamboState, Transition]:
        """A round; ``key`` draws the next one's game."""
        one, other = (action[team].astype(jnp.int32) for team in TEAMS)
        gain = payoffs(jnp.asarray(STAKES)[state.game])[one, other]
        state = RoshamboState(_draw(key), jnp.stack([one, other]), state.time + 1)
        no = jnp.zeros((), jnp.bool_)
        reward = dict(zip(TEAMS, (gain, -gain), strict=True))
        return state, Transition(_observe(state), reward, no, state.time >= self.rounds)

    def render(self, state: RoshamboState) -> npt.NDArray[np.uint8]:
        """What wins are worth now, as bars, and the last moves below them, first left: ``[200, 300, 3]``."""
        image = drawing.canvas(200, 300)
        colours = (drawing.GREY, drawing.SKY, drawing.RED)
        for move, worth in enumerate(STAKES[int(state.game)]):
            left = 30 + 90 * move
            drawing.rectangle(image, left, 110 - 30 * float(worth), left + 60, 110, colours[move])
        for side, move in enumerate(np.asarray(state.moves)):
            if move >= 0:
                drawing.disc(image, (90 + 120 * side, 155), 28, colours[int(move)])
        return image


def payoffs(worth: Array) -> jax.Array:
    """What the row's player gets from the column's, ``[..., 3, 3]``, of what wins are worth, ``[..., 3]``."""
    beats = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], np.float32)  # row beats column
    wins = jnp.asarray(worth)[..., :, None] * beats
    return wins - jnp.swapaxes(wins, -1, -2)


def equilibrium(worth: Array) -> jax.Array:
    """The mixed strategy that no reply gains from, ``[..., 3]``, of what wins are worth, ``[..., 3]``."""
    turned = jnp.roll(jnp.asarray(worth), 1, axis=-1)
    return turned / jnp.sum(turned, axis=-1, keepdims=True)


def exploitability(strategy: Array, worth: Array) -> jax.Array:
    """What the best reply to a mixed strategy (``[..., 3]``) gets in a round: 0 at the equilibrium, else more."""
    return jnp.max(jnp.einsum("...ij,...j->...i", payoffs(worth), jnp.asarray(strategy)), axis=-1)


def _draw(key: jax.Array) -> jax.Array:
    return jax.random.randint(key, (), 0, len(STAKES), jnp.int32)


def _observe(state: RoshamboState) -> dict[str, jax.Array]:
    seen = jax.nn.one_hot(state.game, len(STAKES), dtype=jnp.float32)
    return dict.fromkeys(TEAMS, seen)
