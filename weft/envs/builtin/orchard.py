"""Apples and stones fall into an orchard: a small game seen as pixels, for convolutional policies."""

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

CELLS = 8  # the field is CELLS by CELLS
PIXELS = 2  # and a cell PIXELS by PIXELS
BASKET = 2  # cells wide
PAIRS = np.array([(a, s) for a in range(CELLS) for s in range(CELLS) if abs(a - s) >= BASKET], np.int32)
"""``[42, 2]``: the columns of apple and stone that can fall together: never both over the basket."""

PAINT = {
    "ground": np.array(drawing.NIGHT, np.uint8),
    "basket": np.array(drawing.YELLOW, np.uint8),
    "stone": np.array(drawing.GREY, np.uint8),
    "apple": np.array(drawing.RED, np.uint8),
}


class OrchardState(NamedTuple):
    """Columns in cells. What falls is in row ``time % CELLS``."""

    basket: jax.Array  # [] int32: its left column; it stays in the bottom row
    apple: jax.Array  # [] int32: column
    stone: jax.Array  # [] int32: column
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Orchard:
    """Move a basket left (0), not (1) or right (2): catch the apples, dodge the stones.

    An apple and a stone fall together, one row a step, from the top to the bottom row of an 8 by 8 field; the step
    after they land, the next two appear. When they land, an apple in the basket (two cells wide) gives reward 1; a
    stone in it gives -1 and terminates the episode. Other rewards are 0. Truncated after ``rounds`` rounds of 8 steps.

    Best return: exactly ``rounds`` (12), from every start: each apple can be reached in time, and without its stone. A
    policy that does not look gets 0 on average, random play included, and so does one that cannot tell apples from
    stones: their two columns are drawn from a symmetric distribution, so wherever the basket waits, it meets an apple
    as often as a stone.
    """

    rounds: int = 12

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[16, 16, 3]`` uint8: red apple, grey stone, yellow basket on dark ground. Three actions."""
        side = CELLS * PIXELS
        return EnvSpec(
            "weft:Orchard-v0",
            Box((side, side, 3), "uint8", 0, 255),
            Discrete(3),
            pure=True,
            max_episode_steps=self.rounds * CELLS,
        )

    def reset(self, key: jax.Array) -> tuple[OrchardState, jax.Array]:
        """The basket in the middle, an apple and a stone at the top."""
        apple, stone = _draw(key)
        middle = jnp.full((), (CELLS - BASKET) // 2, jnp.int32)
        state = OrchardState(middle, apple, stone, jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: OrchardState, action: jax.Array, key: jax.Array) -> tuple[OrchardState, Transition]:
        """The basket moves, then everything falls; ``key`` draws the next apple and stone where they are due."""
        basket = jnp.clip(state.basket + action.astype(jnp.int32) - 1, 0, CELLS - BASKET)
        time = state.time + 1
        row = time % CELLS
        next_apple, next_stone = _draw(key)
        apple = jnp.where(row == 0, next_apple, state.apple)
        stone = jnp.where(row == 0, next_stone, state.stone)

        landed = row == CELLS - 1
        caught = landed & _covers(basket, apple)
        terminated = landed & _covers(basket, stone)
        reward = caught.astype(jnp.float32) - terminated.astype(jnp.float32)
        state = OrchardState(basket, apple, stone, time)
        return state, Transition(_observe(state), reward, terminated, time >= self.rounds * CELLS)

    def render(self, state: OrchardState) -> npt.NDArray[np.uint8]:
        """The field with 32 pixels to a cell, ``[256, 256, 3]``."""
        row = int(state.time) % CELLS
        image = drawing.board(CELLS, CELLS, 32)
        left, top = 32 * int(state.basket), 32 * (CELLS - 1)
        drawing.rectangle(image, left + 2, top + 14, left + 32 * BASKET - 2, top + 30, drawing.YELLOW)
        for column, colour in ((state.apple, drawing.RED), (state.stone, drawing.GREY)):
            drawing.disc(image, (32 * int(column) + 16, 32 * row + 16), 11, colour)
        stem = (32 * int(state.apple) + 16.0, 32.0 * row + 7)
        drawing.line(image, stem, (stem[0] + 5, stem[1] - 5), 3, drawing.GREEN)
        return image


def _draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    index = jnp.floor(jax.random.uniform(key) * len(PAIRS)).astype(jnp.int32)
    pair = jnp.asarray(PAIRS)[index]
    return pair[0], pair[1]


def _covers(basket: jax.Array, column: jax.Array) -> jax.Array:
    return (column >= basket) & (column < basket + BASKET)


def _observe(state: OrchardState) -> jax.Array:
    cells = np.arange(CELLS * PIXELS) // PIXELS
    rows, columns = cells[:, None, None], cells[None, :, None]
    falling = rows == state.time % CELLS
    image = jnp.where(
        (rows == CELLS - 1) & _covers(state.basket, jnp.asarray(columns)), PAINT["basket"], PAINT["ground"]
    )
    image = jnp.where(falling & (columns == state.stone), PAINT["stone"], image)
    return jnp.where(falling & (columns == state.apple), PAINT["apple"], image)
