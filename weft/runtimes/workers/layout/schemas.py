"""What passes along each wire, as a channel needs to know it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weft.core.buffers import timestep_buffers
from weft.core.errors import ConfigError
from weft.core.types import Tree
from weft.graph.algorithm import Algorithm
from weft.graph.loops import acted_schema
from weft.runtimes.roles.acting import sends_extras, unroll_block
from weft.runtimes.roles.grad import gradient_schema
from weft.runtimes.workers.layout.blueprint import Blueprint, Wire
from weft.streams.channel import ChannelSpec
from weft.streams.schema import ArraySpec, ArraySpecs, array_specs


def channel_specs(blueprint: Blueprint, algorithm: Algorithm, *, compiled: bool) -> dict[str, ChannelSpec]:
    """The channel of every wire, by its name. ``compiled``: actors roll a JAX environment out in one program."""
    params = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0))).params
    rows = blueprint.lanes[0].rows
    extras = sends_extras(algorithm, lockstep=blueprint.lockstep, compiled=compiled)
    action = acted_schema(algorithm, params).action
    by_stream: dict[str, ArraySpecs] = {
        "timestep": array_specs(timestep_buffers(algorithm.spec.environment, (rows,))),
        "action": (ArraySpec("action", (rows, *action.shape[1:]), str(np.dtype(action.dtype))),),
        "unroll": tree_leaves(unroll_block(algorithm, rows, extras=extras), "unroll"),
        "params": tree_leaves(params, "params"),
    }
    if blueprint.central:
        block = unroll_block(algorithm, rows, extras=extras)
        by_stream["gradients"] = tree_leaves(gradient_schema(algorithm, block, blueprint.pieces)[0], "gradients")

    def spec(wire: Wire) -> ChannelSpec:
        return ChannelSpec(wire.name, by_stream[wire.stream], wire.capacity, wire.delivery, wire.scheme)

    return {wire.name: spec(wire) for wire in blueprint.wires}


def tree_leaves(schema: Tree, what: str) -> ArraySpecs:
    """The leaves of a JAX tree in JAX's order."""
    found, _ = jax.tree_util.tree_flatten_with_path(schema)
    return tuple(ArraySpec(jax.tree_util.keystr(path), tuple(s.shape), _dtype(s, what)) for path, s in found)


def _dtype(schema: Any, what: str) -> str:
    if jax.numpy.issubdtype(schema.dtype, jax.dtypes.extended):
        raise ConfigError(
            f"the algorithm's {what} hold a PRNG key, which cannot pass between processes: keep its words "
            "(jax.random.key_data), or use the plan 'inline'."
        )
    return str(np.dtype(schema.dtype))
