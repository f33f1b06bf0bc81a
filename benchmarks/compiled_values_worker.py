"""Weft's PQN and DQN in ``weft:CartPole-v1`` compiled whole, and the bare programs beside them, in one process.

Needs neither Gymnasium nor anything of the command line: on an accelerator JAX, flax and optax are enough.
"""

from __future__ import annotations

from typing import Any

import jax

from benchmarks import bare_values, stepping
from benchmarks.serve import Contender, serve
from weft.runtimes.prepare.jax_setup import set_up

ENOUGH_LEARN_STEPS = 10**6  # only schedules look at a run's length
STEPS = 5 * bare_values.EPSILON_STEPS  # of each environment: epsilon falls over a fifth of them
ITERATIONS = 50 if jax.default_backend() != "cpu" else 10
"""In one dispatch, of all programs."""


def pqn(*, envs: int, unroll: int, epochs: int, minibatches: int) -> Contender:
    """Weft's PQN. A unit is one dispatch, its report read before the next is sent."""
    from weft.algorithms.pqn import PQN

    return _weft(PQN(unroll=unroll, epochs=epochs, minibatches=minibatches), envs, 1)


def dqn(*, envs: int, unroll: int, batch: int, updates: int, capacity: int) -> Contender:
    """Weft's DQN, ``updates`` learn calls after each unroll; likewise."""
    from weft.algorithms.dqn import DQN

    ratio = updates * batch / (envs * unroll)
    sizes = {"batch": batch, "capacity": capacity, "samples_per_insert": ratio}
    return _weft(DQN(unroll=unroll, target_period=bare_values.TARGET_PERIOD, **sizes), envs, updates)


def _weft(algorithm: Any, envs: int, calls: int) -> Contender:
    from weft.core.specs import Spec
    from weft.envs.builtin import load
    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.replicas import Layout

    env = load(stepping.ENVIRONMENT)
    bound = algorithm.bind(Spec(env.spec, envs, ENOUGH_LEARN_STEPS, STEPS))
    engine = FusedEngine(bound.graph(), env, Layout((jax.devices()[0],)), envs, seed=0)
    engine.start()

    def run(dispatches: int) -> None:
        made = 0
        while made < dispatches * ITERATIONS * calls:  # a dispatch that only fills the replay makes none
            report = engine.advance(ITERATIONS * calls)()
            assert report.finite
            made += report.learn_steps

    return Contender(envs * algorithm.unroll * ITERATIONS, run)


def bare_pqn(**sizes: int) -> Contender:
    """The bare PQN. A unit is one dispatch."""
    return _bare(*bare_values.pqn(**sizes), sizes)


def bare_dqn(**sizes: int) -> Contender:
    """The bare DQN. A unit is one dispatch."""
    return _bare(*bare_values.dqn(**sizes), sizes)


def _bare(start: Any, iteration: Any, sizes: dict[str, int]) -> Contender:
    program = jax.jit(lambda carry: jax.lax.scan(iteration, carry, None, ITERATIONS)[0], donate_argnums=0)
    held = [start]

    def run(dispatches: int) -> None:
        for _ in range(dispatches):
            held[0] = jax.block_until_ready(program(held[0]))

    return Contender(sizes["envs"] * sizes["unroll"] * ITERATIONS, run)


if __name__ == "__main__":
    set_up(cache=False)
    serve({"pqn": pqn, "dqn": dqn, "bare pqn": bare_pqn, "bare dqn": bare_dqn})
