"""``weft:CartPole-v1`` compiled whole, and the bare program that it is measured against, in the same process.

Imports neither Gymnasium nor anything of the command line: on an accelerator JAX, flax and optax are enough.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from benchmarks import stepping
from benchmarks.serve import Contender, serve
from weft.runtimes.prepare.jax_setup import set_up

ENOUGH_LEARN_STEPS = 10**6  # only schedules look at a run's length, and there are none here


def ppo(*, envs: int, unroll: int, epochs: int, minibatches: int, iterations: int) -> Contender:
    """Weft's fused engine. A unit is one dispatch of ``iterations``, its report read before the next is sent."""
    from weft.algorithms.ppo import PPO
    from weft.core.specs import Spec
    from weft.envs.builtin import load
    from weft.runtimes.compiled.engine import FusedEngine
    from weft.runtimes.compiled.replicas import Layout

    env = load(stepping.ENVIRONMENT)
    algorithm = PPO(unroll=unroll, epochs=epochs, minibatches=minibatches).bind(
        Spec(env.spec, envs, ENOUGH_LEARN_STEPS)
    )
    engine = FusedEngine(algorithm.graph(), env, Layout((jax.devices()[0],)), envs, seed=0)
    engine.start()

    def run(dispatches: int) -> None:
        for _ in range(dispatches):
            report = engine.advance(iterations)()
            assert report.finite

    return Contender(envs * unroll * iterations, run)


def bare(*, path: str, envs: int, unroll: int, epochs: int, minibatches: int, iterations: int) -> Contender:
    """The program of ``bare_ppo.py``, put together as its ``main`` does. A unit is one dispatch of ``iterations``."""
    module_spec = importlib.util.spec_from_file_location("bare_ppo", Path(path))
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)

    sizes = argparse.Namespace(envs=envs, unroll=unroll, epochs=epochs, minibatches=minibatches)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4))
    key, init_key, obs_key = jax.random.split(jax.random.PRNGKey(0), 3)
    params = module.init_params(init_key)
    obs = jax.random.uniform(obs_key, (envs, 4), minval=-0.05, maxval=0.05)
    state = (*obs.T, jnp.zeros(envs, jnp.int32))
    iteration = module.make_iteration(sizes, optimizer)
    program = jax.jit(lambda carry: jax.lax.scan(iteration, carry, None, iterations))
    held = [(params, optimizer.init(params), (state, obs, key, jnp.zeros(envs)))]

    def run(dispatches: int) -> None:
        for _ in range(dispatches):
            held[0], _ = jax.block_until_ready(program(held[0]))

    return Contender(envs * unroll * iterations, run)


if __name__ == "__main__":
    set_up(cache=False)
    serve({"ppo": ppo, "bare": bare, "stepping": stepping.compiled})
