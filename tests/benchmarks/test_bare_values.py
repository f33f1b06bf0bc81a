"""The bare programs that compiled Weft is held against compute what they say; and Ape-X's rates by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import bare_values
from benchmarks.apex import steady
from weft.envs.builtin import load
from weft.envs.builtin.cartpole import CartPoleState


def test_the_bare_cartpole_is_wefts():
    key = jax.random.key(0)
    body = jax.random.uniform(key, (64, 4), minval=-2.6, maxval=2.6) * jnp.array([1.0, 1.0, 0.08, 1.0])
    time, action = jnp.arange(64) + 440, jnp.arange(64) % 2
    seen, terminated, ended = bare_values.env_step(body, time, action)
    _, theirs = jax.vmap(load("CartPole-v1").step)(CartPoleState(body, time), action, jax.random.split(key, 64))
    np.testing.assert_allclose(seen, theirs.observation, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(terminated, theirs.terminated)
    np.testing.assert_array_equal(ended, theirs.terminated | theirs.truncated)
    assert 0 < int(terminated.sum()) < int(ended.sum()) < 64


def test_the_bare_dqn_keeps_every_step_and_makes_as_many_updates_as_asked_for():
    start, iteration = bare_values.dqn(envs=4, unroll=3, batch=8, updates=5, capacity=24)
    (params, target, _, count, kept, inserted, acting), _ = jax.jit(
        lambda carry: jax.lax.scan(iteration, carry, None, 3)
    )(start)
    assert (int(count), int(inserted), int(acting.steps)) == (15, 3, 9)
    assert kept.body.shape == (2, 12, 4)  # the third unroll is where the first one was
    goes_on = ~np.asarray(kept.terminated[0]).reshape(3, 4)[:2]
    follows = np.isclose(kept.following[0].reshape(3, 4, 4)[:2], kept.body[0].reshape(3, 4, 4)[1:]).all(-1)
    assert (follows == goes_on).all()
    assert not np.allclose(params[0][0], target[0][0])


def test_rates_begin_when_a_run_has_settled():
    told = [
        {"wall_seconds": at, "learn_steps": calls, "replay/inserted": inserted, "replay/sampled": sampled}
        for at, calls, inserted, sampled in [
            (10, 1, 100, 0),
            (11, 2, 9_000, 9),
            (12, 10, 1_000, 400),
            (16, 50, 5_000, 3_600),
        ]
    ]
    found = steady(told)
    assert found is not None
    assert (found["rate"], found["learn_rate"], found["drawn"]) == (1_000.0, 10.0, pytest.approx(0.8))
    assert steady(told[:3]) is None
