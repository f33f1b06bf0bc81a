"""The two-step game (Rashid et al., arXiv 1803.11485): a team of two that only wins if its values may be no sums."""

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

PAYOFF = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)
"""``[game, action of the first agent, action of the second]``: of games 2A and 2B."""
ROOMS = 3  # the start, game 2A, game 2B; so they are numbered


class TwoStepState(NamedTuple):
    """Where the two are."""

    room: jax.Array  # [] int32
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class TwoStep:
    """Two agents, two steps, two actions: the first agent chooses the game that both play in the second step.

    In the first step nothing is paid, and the second agent's action is idle: the first agent's leads to game 2A (action
    0) or to game 2B (1). The second step pays, to both, and terminates the episode.

        2A   second: 0  1        2B   second: 0  1
        first 0      7  7        first 0      0  1
              1      7  7              1      1  8

    Best return 8: game 2B, and both choose 1. Random play gets 4.75; in game 2B it gets 2.5, which makes 2A, where
    nobody can go wrong, look better to whoever learns by itself. The best sum of a value for each agent that fits game
    2B under random play is -1.5, 2.5, 2.5, 6.5: less than the 7 of game 2A. So VDN chooses 2A as long as all actions
    are tried alike, and QMIX, which can tell 0, 1, 1, 8, chooses 2B.
    """

    @property
    def spec(self) -> EnvSpec:
        """Both agents, and the state, see the room, one-hot, ``[3]`` float32."""
        room = Box((ROOMS,), "float32", 0.0, 1.0)
        agent = EnvSpec("weft:TwoStep-v0", room, Discrete(2), pure=True)
        return EnvSpec.of_agents("weft:TwoStep-v0", agent, ("first", "second"), state=room, max_episode_steps=2)

    def reset(self, key: jax.Array) -> tuple[TwoStepState, dict[str, jax.Array]]:
        """Both at the start; ``key`` is not used."""
        state = TwoStepState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: TwoStepState, action: jax.Array, key: jax.Array) -> tuple[TwoStepState, Transition]:
        """Into a game, or paid in it; ``key`` is not used."""
        played = state.time > 0
        paid = jnp.asarray(PAYOFF)[jnp.maximum(state.room - 1, 0), action[0], action[1]]
        room = jnp.where(played, state.room, 1 + action[0].astype(jnp.int32))
        reward = jnp.full(2, jnp.where(played, paid, 0.0))
        state = TwoStepState(room, state.time + 1)
        return state, Transition(_observe(state), reward, played, jnp.zeros((), jnp.bool_))

    def render(self, state: TwoStepState) -> npt.NDArray[np.uint8]:
        """Three rooms, the start above the two games, and two discs in the one where the agents are."""
        image = drawing.canvas(240, 240, drawing.NIGHT)
        corners = ((80, 20), (20, 130), (140, 130))
        for room, (left, top) in enumerate(corners):
            here = room == int(state.room)
            drawing.rectangle(image, left, top, left + 80, top + 80, drawing.PAPER if here else drawing.DUSK)
        left, top = corners[int(state.room)]
        for k, colour in enumerate((drawing.RED, drawing.BLUE)):
            drawing.disc(image, (left + 22 + 36 * k, top + 40), 14, colour)
        return image


def _observe(state: TwoStepState) -> dict[str, jax.Array]:
    room = jax.nn.one_hot(state.room, ROOMS)
    return {"agents": jnp.stack([room, room]), "state": room}
