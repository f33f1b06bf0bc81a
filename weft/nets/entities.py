"""Observations that are sets of entities, some of which are out of sight: read by masked self-attention.

Entities of a kind are a Box ``NAME`` of ``[N, F]`` beside a MultiBinary ``NAME_seen`` of ``N``. Whatever their order,
the encoding is the same, and those that are not seen change nothing (Baker et al., arXiv 1909.07528, appendix B.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from weft.core.specs import Box, MultiBinary, SpaceTree
from weft.core.types import Tree

SEEN = "_seen"
HEADS = 4


def entities_of(space: SpaceTree) -> list[str]:
    """The kinds of entities in a dict of spaces, by name; none in anything else."""
    if not isinstance(space, Mapping):
        return []
    return [name for name in sorted(space) if _is_kind(space[name], space.get(f"{name}{SEEN}"))]


def _is_kind(what: Any, seen: Any) -> bool:
    return isinstance(what, Box) and len(what.shape) == 2 and isinstance(seen, MultiBinary) and seen.n == what.shape[0]


class Entities(nn.Module):
    """What is seen of all entities, and of ``own``, to one vector.

    Each entity is embedded together with ``own``, by its kind; so is ``own`` itself, which is always seen. One layer of
    self-attention over all of them, with a residual and a normalisation, then the mean over those that are seen.
    """

    kinds: tuple[str, ...]
    size: int  # of an embedding; a multiple of HEADS

    @nn.compact
    def __call__(self, own: jax.Array, observation: Tree) -> jax.Array:
        """``own`` is ``[..., F]``, entities ``[..., N, F]``: gives ``[..., size]``."""
        lead = own.shape[:-1]
        tokens = [nn.Dense(self.size, name="own")(own)[..., None, :]]
        masks = [jnp.ones((*lead, 1), jnp.bool_)]
        for kind in self.kinds:
            found = observation[kind].astype(jnp.float32)
            beside = jnp.broadcast_to(own[..., None, :], (*found.shape[:-1], own.shape[-1]))
            tokens.append(nn.Dense(self.size, name=f"kind_{kind}")(jnp.concatenate([found, beside], -1)))
            masks.append(observation[f"{kind}{SEEN}"] > 0)
        x, seen = nn.relu(jnp.concatenate(tokens, -2)), jnp.concatenate(masks, -1)
        pairs = seen[..., None, None, :] & seen[..., None, :, None]  # [..., heads, query, key]
        x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(HEADS)(x, x, mask=pairs))
        count = seen.sum(-1, keepdims=True).astype(jnp.float32)  # at least 1
        mean: jax.Array = jnp.where(seen[..., None], x, 0.0).sum(-2) / count
        return mean
