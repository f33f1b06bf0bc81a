"""Stepping alone, without a policy or learning: the limits that training speed is held against.

Actions are drawn beforehand; a unit is one step of every environment, and episodes that end are reset.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.serve import Contender

ENVIRONMENT = "CartPole-v1"
DRAWN = 1024


def loop(*, envs: int) -> Contender:
    """``gym.make`` environments stepped one by one in a bare Python loop: what one core reaches at best."""
    import gymnasium as gym

    made = [gym.make(ENVIRONMENT) for _ in range(envs)]
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    # NumPy scalars, as ``action_space.sample()`` gives them: faster to check than Python's integers.
    batches = itertools.cycle([list(batch) for batch in _actions(envs)])

    def run(steps: int) -> None:
        for _ in range(steps):
            for env, action in zip(made, next(batches), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    return Contender(envs, run)


def native(*, envs: int) -> Contender:
    """Gymnasium's own vector environment for CartPole: one NumPy computation for all."""
    import gymnasium as gym

    vector = gym.make_vec(ENVIRONMENT, envs, vectorization_mode="vector_entry_point")
    vector.reset(seed=0)
    batches = itertools.cycle(_actions(envs))

    def run(steps: int) -> None:
        for _ in range(steps):
            vector.step(next(batches))

    return Contender(envs, run)


def vectoriser(*, envs: int) -> Contender:
    """Weft's vectoriser, with its checks and its log for resuming."""
    from weft.core.buffers import timestep_buffers
    from weft.envs.registry import open_environment

    source = open_environment(ENVIRONMENT, vector="each")
    assert source.host is not None
    batch, out = source.host(envs, 0), timestep_buffers(source.spec, (envs,))
    batch.reset(out)
    batches = itertools.cycle(_actions(envs))

    def run(steps: int) -> None:
        for _ in range(steps):
            batch.step(next(batches), out)

    return Contender(envs, run)


def compiled(*, envs: int, unroll: int) -> Contender:
    """``weft:CartPole-v1`` with auto-reset and random actions, one compiled scan. A unit is ``unroll`` steps."""
    import jax
    import jax.numpy as jnp

    from weft.envs.autoreset import advance, begin
    from weft.envs.builtin import load

    env = load(ENVIRONMENT)

    def step(carry: tuple[Any, jax.Array, jax.Array], _: None) -> tuple[tuple[Any, jax.Array, jax.Array], None]:
        state, total, key = carry
        key, act_key, env_key = jax.random.split(key, 3)
        action = jax.random.randint(act_key, (envs,), 0, 2)
        state, timestep = jax.vmap(lambda s, a, k: advance(env, s, a, k))(
            state, action, jax.random.split(env_key, envs)
        )
        return (state, total + timestep.reward, key), None

    @jax.jit
    def many(carry: tuple[Any, jax.Array, jax.Array], iterations: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        return jax.lax.fori_loop(0, iterations, lambda _, c: jax.lax.scan(step, c, None, unroll)[0], carry)

    state, _ = jax.vmap(lambda key: begin(env, key))(jax.random.split(jax.random.key(0), envs))
    held = [(state, jnp.zeros(envs), jax.random.key(1))]

    def run(iterations: int) -> None:
        held[0] = jax.block_until_ready(many(held[0], jnp.int32(iterations)))

    return Contender(envs * unroll, run)


def _actions(envs: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(0).integers(0, 2, (DRAWN, envs))
