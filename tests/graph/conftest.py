"""A small loop by hand: env ⇄ act → learn → act, with 8 environments and unrolls of 4 steps."""

import jax
import jax.numpy as jnp
import pytest

from weft.graph import Delivery, Fragment, Graph, Port, Rhythm, Stream

TIMESTEP = {"observation": jax.ShapeDtypeStruct((8, 3), jnp.float32), "reward": jax.ShapeDtypeStruct((8,), jnp.float32)}
ACTION = jax.ShapeDtypeStruct((8,), jnp.int32)
UNROLL = {name: jax.ShapeDtypeStruct((4, *leaf.shape), leaf.dtype) for name, leaf in TIMESTEP.items()}
PARAMS = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32), "b": jax.ShapeDtypeStruct((2,), jnp.bfloat16)}


@pytest.fixture(scope="session")
def loop() -> Graph:
    timestep, action, unroll, params = (
        Port(name, schema)
        for name, schema in (("timestep", TIMESTEP), ("action", ACTION), ("unroll", UNROLL), ("params", PARAMS))
    )
    return Graph(
        (
            Fragment("env", (action,), (timestep,), pure=False),
            Fragment("act", (timestep, params), (action, unroll)),
            Fragment("learn", (unroll,), (params,), parts=("grad", "apply")),
        ),
        (
            Stream("timestep", "env", "act", TIMESTEP, rhythm=Rhythm.STEP),
            Stream("action", "act", "env", ACTION, rhythm=Rhythm.STEP),
            Stream("unroll", "act", "learn", UNROLL),
            Stream("params", "learn", "act", PARAMS, Delivery.LATEST, Rhythm.UPDATE),
        ),
    )
