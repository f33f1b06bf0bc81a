"""A policy that sees what its agent sees, and a critic that sees the state of all besides.

Observations are ``{own, state}``. The critic is used in training alone, so that agents act by themselves once trained.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from weft.core.errors import UnknownName
from weft.core.specs import SpaceTree
from weft.core.types import Tree
from weft.nets.actor_critic import CELLS, Head
from weft.nets.encoders import Encoder, dense, has_image
from weft.nets.network import Network, NetworkOutput

_KINDS = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}


class Central(nn.Module):
    """Two towers; with a ``cell``, each with a memory of its own."""

    space: Any  # {own, state}
    num_params: int
    hidden: tuple[int, ...]
    activation: str
    deviation: float | None
    cell: str
    size: int
    attention: int = 0  # as Encoder has it

    @nn.compact
    def __call__(self, carry: Tree, observation: Tree) -> NetworkOutput:
        """Logits and value for ``[..., *shape]`` observations, and the next carry."""
        towers = []
        for space, seen in ((self.space["own"], observation["own"]), (self.space, observation)):
            hidden = self.hidden[:1] if self.cell else self.hidden
            hidden = () if has_image(space) else hidden
            towers.append(Encoder(space, hidden, self.activation, attention=self.attention)(seen))
        if self.cell:
            pairs = [_KINDS[self.cell](self.size)(kept, x) for kept, x in zip(carry, towers, strict=True)]
            carry, towers = tuple(kept for kept, _ in pairs), [x for _, x in pairs]
        policy, critic = towers
        return NetworkOutput(Head(self.num_params, self.deviation)(policy), dense(1, 1.0)(critic)[..., 0], carry)


def central_actor_critic(
    space: SpaceTree,
    num_params: int,
    *,
    hidden: tuple[int, ...] = (64, 64),
    activation: str = "tanh",
    deviation: float | None = None,
    recurrent: str = "",
    recurrent_size: int = 64,
    attention: int = 0,
) -> Network:
    """A network for ``{own, state}`` observations; the arguments are those of ``actor_critic``."""
    if recurrent and recurrent not in CELLS:
        raise UnknownName("recurrent cell", recurrent, CELLS)
    module = Central(space, num_params, hidden, activation, deviation, recurrent, recurrent_size, attention)
    zeros = np.zeros(recurrent_size, np.float32)
    one = (zeros, zeros) if recurrent == "lstm" else zeros
    carry: Tree = (one, one) if recurrent else ()
    example = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), space, is_leaf=lambda s: hasattr(s, "dtype"))
    return Network(
        init=lambda key: module.init(key, carry, example)["params"],
        apply=lambda params, carry, seen: NetworkOutput(*module.apply({"params": params}, carry, seen)),
        carry=carry,
    )
