"""A cue, a blank delay, a question: a task that only a policy with memory can solve."""

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

CUE_COLOURS = (drawing.RED, drawing.GREEN, drawing.BLUE, drawing.YELLOW, drawing.ORANGE, drawing.SKY)


class MemoryState(NamedTuple):
    """Actions never change the state: nothing can be written down in it."""

    cue: jax.Array  # [] int32
    time: jax.Array  # [] int32: steps made


@dataclass(frozen=True)
class Memory:
    """Repeat, after ``length`` blank steps, the cue that was shown at the first one.

    The first observation shows one of ``cues`` cues. ``length`` blank observations follow, then one with only the
    question mark set. The action taken there is judged: reward 1 if it equals the cue, ``-1 / (cues - 1)`` if not (-1
    with two cues); it terminates the episode, after ``length + 2`` steps. All other rewards are 0, all other
    actions idle. Best return 1, by any policy that remembers the cue; random play gets 0 on average.

    Without memory the expected return is exactly 0. Proof: the cue C is uniform over n cues. The last observation q is
    the same whatever C was, and a policy without memory draws its last action A from a distribution that depends on q
    alone, with randomness of its own; no earlier action can carry C there, because actions do not change the state. So
    A and C are independent, whence P(A = C) = sum over a of P(A = a) · 1/n = 1/n, and the expected return is
    1/n · 1 - (1 - 1/n) / (n - 1) = 0. The step's number does not help either: it is the same in every episode.
    """

    cues: int = 2
    length: int = 8

    def __post_init__(self) -> None:
        if self.cues < 2 or self.length < 0:
            raise ConfigError(f"weft:Memory-v0: needs cues >= 2 and length >= 0, got {self.cues} and {self.length}")

    @property
    def spec(self) -> EnvSpec:
        """Observation ``[cues + 1]`` float32: the cue one-hot, then the question mark. One action for each cue."""
        return EnvSpec(
            "weft:Memory-v0",
            Box((self.cues + 1,), "float32", 0.0, 1.0),
            Discrete(self.cues),
            pure=True,
            max_episode_steps=self.length + 2,
        )

    def reset(self, key: jax.Array) -> tuple[MemoryState, jax.Array]:
        """The cue drawn evenly, and shown."""
        cue = jnp.floor(jax.random.uniform(key) * self.cues).astype(jnp.int32)
        state = MemoryState(cue, jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, state: MemoryState, action: jax.Array, key: jax.Array) -> tuple[MemoryState, Transition]:
        """Time passes; the action counts only at the question. ``key`` is not used."""
        asked = state.time == self.length + 1
        verdict = jnp.where(action == state.cue, 1.0, -1.0 / (self.cues - 1))
        reward = jnp.where(asked, verdict, 0.0)
        state = MemoryState(state.cue, state.time + 1)
        return state, Transition(self._observe(state), reward, asked, jnp.zeros((), jnp.bool_))

    def render(self, state: MemoryState) -> npt.NDArray[np.uint8]:
        """What is shown now (a coloured disc, nothing, or the question ring) and a time line; ``[200, 240, 3]``."""
        cue, time = int(state.cue), int(state.time)
        image = drawing.canvas(200, 240, drawing.NIGHT)
        if time == 0:
            drawing.disc(image, (120, 85), 50, CUE_COLOURS[cue % len(CUE_COLOURS)])
        elif time == self.length + 1:
            drawing.disc(image, (120, 85), 50, drawing.PAPER)
            drawing.disc(image, (120, 85), 40, drawing.NIGHT)
            drawing.disc(image, (120, 85), 8, drawing.PAPER)
        drawing.rectangle(image, 20, 170, 220, 178, drawing.GREY)
        drawing.rectangle(image, 20, 170, 20 + 200 * min(time / (self.length + 1), 1.0), 178, drawing.PAPER)
        return image

    def _observe(self, state: MemoryState) -> jax.Array:
        # Past the end (the final observation) the picture is blank again, so that it says nothing of the cue either.
        places = np.arange(self.cues + 1)
        shown = (state.time == 0) & (places == state.cue)
        asked = (state.time == self.length + 1) & (places == self.cues)
        return jnp.asarray(shown | asked, jnp.float32)
