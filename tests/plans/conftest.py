"""Small graphs by hand, with 12 environments: PPO's loop, one with replay, one with two policies."""

import jax
import jax.numpy as jnp
import pytest

from weft.graph import Delivery, Fragment, Graph, Port, Rhythm, Stream

ENVS = 12
VECTOR = jax.ShapeDtypeStruct((ENVS,), jnp.float32)


def fragment(name: str, inputs: str, outputs: str, **rest) -> Fragment:
    ports = [tuple(Port(port, VECTOR) for port in names.split()) for names in (inputs, outputs)]
    return Fragment(name, ports[0], ports[1], **rest)


def stream(name: str, source: str, target: str, rhythm: Rhythm = Rhythm.STEP) -> Stream:
    delivery = Delivery.LATEST if rhythm is Rhythm.UPDATE else Delivery.BLOCK
    return Stream(name, source, target, VECTOR, delivery, rhythm)


def make_loop(pure_env: bool = True) -> Graph:
    return Graph(
        (
            fragment("env", "action", "timestep", pure=pure_env),
            fragment("act", "timestep params", "action unroll"),
            fragment("learn", "unroll", "params", parts=("grad", "apply")),
        ),
        (
            stream("timestep", "env", "act"),
            stream("action", "act", "env"),
            stream("unroll", "act", "learn", Rhythm.UNROLL),
            stream("params", "learn", "act", Rhythm.UPDATE),
        ),
    )


@pytest.fixture(scope="session")
def loop() -> Graph:
    """PPO's: env, act, learn; all pure."""
    return make_loop()


@pytest.fixture(scope="session")
def host_loop() -> Graph:
    """The same around a host environment."""
    return make_loop(pure_env=False)


@pytest.fixture(scope="session")
def replay_loop() -> Graph:
    """Off-policy: replay between act and learn."""
    return Graph(
        (
            fragment("env", "action", "timestep"),
            fragment("act", "timestep params", "action unroll"),
            fragment("replay", "unroll", "batch"),
            fragment("learn", "batch", "params"),
        ),
        (
            stream("timestep", "env", "act"),
            stream("action", "act", "env"),
            stream("unroll", "act", "replay", Rhythm.UNROLL),
            stream("batch", "replay", "learn", Rhythm.UPDATE),
            stream("params", "learn", "act", Rhythm.UPDATE),
        ),
    )


@pytest.fixture(scope="session")
def two_policies() -> Graph:
    """Hiders and seekers beside one env."""
    sides = ("hiders", "seekers")
    act = [fragment(f"act.{s}", f"timestep params.{s}", f"action.{s} unroll.{s}") for s in sides]
    learn = [fragment(f"learn.{s}", f"unroll.{s}", f"params.{s}", parts=(f"grad.{s}", f"apply.{s}")) for s in sides]
    env = fragment("env", "action.hiders action.seekers", "timestep")
    streams = [
        leg
        for s in sides
        for leg in (
            stream("timestep", "env", f"act.{s}"),
            stream(f"action.{s}", f"act.{s}", "env"),
            stream(f"unroll.{s}", f"act.{s}", f"learn.{s}", Rhythm.UNROLL),
            stream(f"params.{s}", f"learn.{s}", f"act.{s}", Rhythm.UPDATE),
        )
    ]
    return Graph((env, *act, *learn), tuple(streams))
