"""QMIX (Rashid et al., arXiv 1803.11485): VDN with a network in place of the sum, read together with ``vdn.py``.

The mixer may be any function of the agents' values that grows with each of them, a different one in every state. So
what is best for the team is still what each agent finds best for itself, and more teams' values can be told than by a
sum. Its weights are made by hyper-networks from the environment's ``state``, or from all agents' observations where
there is none. Only learning needs it: agents act by their own values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from weft.algorithms.vdn import VDN
from weft.core.types import Array, Tree
from weft.nets import Mixer, monotonic_mixer


@dataclass(frozen=True)
class QMIX(VDN):
    """VDN's hyper-parameters, and those of the mixer."""

    mixing: int = 32  # units of the mixer's hidden layer
    hyper_hidden: tuple[int, ...] = (64,)  # layers between the state and the mixer's weights; (): none

    @property
    def mixer(self) -> Mixer:
        """The team's value, of its agents' values and the state."""
        env = self.spec.environment
        seen: Any = env.observation
        space = seen["state"] if "state" in seen else seen["agents"]
        return monotonic_mixer(space, len(env.agents), size=self.mixing, hidden=self.hyper_hidden)

    def init_params(self, key: jax.Array) -> dict[str, Tree]:
        """``agents`` as VDN's, and ``mixer``."""
        agents_key, mixer_key = jax.random.split(key)
        return {**super().init_params(agents_key), "mixer": self.mixer.init(mixer_key)}

    def mix(self, params: Tree, values: Array, observation: Tree) -> jax.Array:
        """``[N]`` of the team, of ``[N, A]`` values of its agents, 0 for those that are not present."""
        state = observation["state"] if "state" in observation else observation["agents"]
        return self.mixer.apply(params["mixer"], state, values)
