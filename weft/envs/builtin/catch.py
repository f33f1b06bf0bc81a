"""A falling ball and a paddle on a small board, after the task of bsuite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition


class CatchState(NamedTuple):
    """The ball's row is also the number of steps made."""

    row: jax.Array  # [] int32: the ball's, 0 is the top
    column: jax.Array  # [] int32: the ball's
    paddle: jax.Array  # [] int32: the paddle's column; it stays in the bottom row


@dataclass(frozen=True)
class Catch:
    """Move the paddle left (0), not (1) or right (2) while the ball falls one row a step.

    When the ball arrives in the bottom row the episode is terminated, with reward 1 if the paddle is there (it moves
    first) and -1 if not; reward 0 before. So an episode has ``rows - 1`` steps. Best return 1; on the default board
    random play gets about -0.6, and every start can be won.
    """

    rows: int = 10
    columns: int = 5

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[rows, columns]`` float32: 1 at the ball and at the paddle, else 0. Three actions."""
        return EnvSpec(
            "weft:Catch-v0",
            Box((self.rows, self.columns), "float32", 0.0, 1.0),
            Discrete(3),
            pure=True,
            max_episode_steps=self.rows - 1,
        )

    def reset(self, key: jax.Array) -> tuple[CatchState, jax.Array]:
        """The ball in a column drawn evenly, at the top; the paddle in the middle."""
        column = jnp.floor(jax.random.uniform(key) * self.columns).astype(jnp.int32)
        state = CatchState(jnp.zeros((), jnp.int32), column, jnp.full((), self.columns // 2, jnp.int32))
        return state, self._observe(state)

    def step(self, state: CatchState, action: jax.Array, key: jax.Array) -> tuple[CatchState, Transition]:
        """The paddle moves, then the ball falls; ``key`` is not used."""
        paddle = jnp.clip(state.paddle + action.astype(jnp.int32) - 1, 0, self.columns - 1)
        state = CatchState(state.row + 1, state.column, paddle)
        terminated = state.row >= self.rows - 1
        reward = jnp.where(terminated, jnp.where(paddle == state.column, 1.0, -1.0), 0.0)
        return state, Transition(self._observe(state), reward, terminated, jnp.zeros((), jnp.bool_))

    def render(self, state: CatchState) -> npt.NDArray[np.uint8]:
        """The board with 40 pixels to a cell: ``[400, 200, 3]`` by default."""
        image = drawing.board(self.rows, self.columns, 40)
        left, top = 40 * int(state.paddle), 40 * (self.rows - 1)
        drawing.rectangle(image, left + 2, top + 22, left + 38, top + 36, drawing.SKY)
        drawing.disc(image, (40 * int(state.column) + 20, 40 * int(state.row) + 20), 13, drawing.ORANGE)
        return image

    def _observe(self, state: CatchState) -> jax.Array:
        rows = np.arange(self.rows)[:, None]
        columns = np.arange(self.columns)[None, :]
        ball = (rows == state.row) & (columns == state.column)
        paddle = (rows == self.rows - 1) & (columns == state.paddle)
        return jnp.asarray(ball | paddle, jnp.float32)
