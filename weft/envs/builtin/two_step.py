"""The two-step game (Rashid et al., arXiv 1803.11485): two agents must give up a sure pay-off to find a higher one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec
from weft.envs.builtin import drawing
from weft.envs.protocol import Transition

SURE = 7.0  # what game 2A pays
RISKY = np.array([0, 1, 8], np.float32)  # what game 2B pays, by how many agents choose their last action
ROOMS = 3  # the start, game 2A, game 2B; so they are numbered


class TwoStepState(NamedTuple):
    """Where the two are."""

    room: jax.Array  # [] int32
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class TwoStep:
    """Two agents, two steps, ``actions`` actions each: the first agent chooses the game that both play at last.

    In the first step nothing is paid and the second agent's action is idle: the first agent's last action leads to game
    2B, any other to game 2A. The second step pays, to both, and terminates the episode: in game 2A always 7; in game 2B
    8 if both choose their last action, 1 if one of them does, 0 if none does. With two actions, as published:

        2A   second: 0  1        2B   second: 0  1
        first 0      7  7        first 0      0  1
              1      7  7              1      1  8

    Best return 8: game 2B, and both choose their last action. Random play gets 4.75 with two actions, 5.73 with five.
    What makes 8 hard to find is that random play in game 2B gets 2.5 (with five actions 0.64), far less than 7. A
    policy that learns only from what it does itself leaves 2B before it can play it, the sooner the more actions there
    are. And the best sum of a value for each agent that fits game 2B under random play is -1.5, 2.5, 2.5, 6.5 (of two
    last actions 4.16 with five): as long as all actions are tried alike, VDN, which learns such sums, chooses 2A. QMIX
    can tell 0, 1, 1, 8, and chooses 2B.
    """

    actions: int = 2

    def __post_init__(self) -> None:
        if self.actions < 2:
            raise ConfigError(f"weft:TwoStep-v0: needs actions >= 2, got {self.actions}")

    @property
    def spec(self) -> EnvSpec:
        """Both agents, and the state, see the room, one-hot, ``[3]`` float32."""
        room = Box((ROOMS,), "float32", 0.0, 1.0)
        agent = EnvSpec("weft:TwoStep-v0", room, Discrete(self.actions), pure=True)
        return EnvSpec.of_agents("weft:TwoStep-v0", agent, ("first", "second"), state=room, max_episode_steps=2)

    def reset(self, key: jax.Array) -> tuple[TwoStepState, dict[str, jax.Array]]:
        """Both at the start; ``key`` is not used."""
        state = TwoStepState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, _observe(state)

    def step(self, state: TwoStepState, action: jax.Array, key: jax.Array) -> tuple[TwoStepState, Transition]:
        """Into a game, or paid in it; ``key`` is not used."""
        played = state.time > 0
        last = action == self.actions - 1
        paid = jnp.where(state.room == 1, SURE, jnp.asarray(RISKY)[last.sum()])
        room = jnp.where(played, state.room, 1 + last[0].astype(jnp.int32))
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
