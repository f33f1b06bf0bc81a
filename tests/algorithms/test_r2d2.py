"""R2D2's returns and burn-in, against what is worked out by hand or computed another way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, Spec
from weft.core.types import Earlier, Sequences
from weft.ops.rescaling import rescaled, unrescaled

SPEC = EnvSpec("toys:Line", Box((2,)), Discrete(3))
LENGTH, COUNT = 6, 4


def made(**fields):
    settings = {"unroll": LENGTH, "hidden": (8,), "recurrent_size": 8, "batch": 8, "learning_begins": 8}
    return weft.R2D2(**{**settings, "capacity": 512, "discount": 0.5, **fields}).bind(Spec(SPEC, 8, 100, 1000))


def some_batch(seed: int = 0, **changes) -> Sequences:
    random = np.random.default_rng(seed)
    shape = (LENGTH, COUNT)
    seen = random.normal(size=(2 * LENGTH + 1, COUNT, 2)).astype(np.float32)
    batch = Sequences(
        observation=seen[LENGTH:-1],
        first=np.zeros(shape, bool),
        action=random.integers(0, 3, shape),
        reward=np.zeros(shape, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        following=seen[LENGTH + 1 :],
        known=np.ones(shape, bool),
        valid=np.ones(shape, bool),
        carry=np.zeros((COUNT, 8), np.float32),
        weight=np.ones(COUNT, np.float32),
        ids=np.zeros((COUNT, 2), np.int32),
        earlier=Earlier(seen[:LENGTH], np.zeros(shape, bool), np.ones((COUNT, 8), np.float32), np.ones(COUNT, bool)),
    )
    return jax.tree.map(jnp.asarray, batch._replace(**changes))


def flags(*at: tuple[int, int]) -> np.ndarray:
    found = np.zeros((LENGTH, COUNT), bool)
    for where in at:
        found[where] = True
    return found


def test_returns_of_three_steps_end_with_episodes_with_records_that_are_not_valid_and_with_the_sequence():
    reward = np.zeros((LENGTH, COUNT), np.float32)
    reward[:] = np.arange(1, LENGTH + 1)[:, None]
    following = jnp.asarray(np.full((LENGTH, COUNT), 16.0, np.float32) + np.arange(COUNT))
    batch = some_batch(
        reward=reward, terminated=flags((2, 1)), truncated=flags((2, 2)), valid=~flags((3, 3)), known=~flags((2, 2))
    )
    aim, usable = made(n_step=3).aim(batch, following)
    # 0: r + r/2 + r/4 + value/8, fewer steps at the end
    np.testing.assert_allclose(aim[:, 0], [4.75, 6.5, 8.25, 10.0, 12.0, 14.0])
    # 1: the third step terminates, and nothing is valued after it
    np.testing.assert_allclose(aim[:3, 1], [2.75, 3.5, 3.0])
    # 2: it is cut, and valued; but here what it led to is not known, so nothing that ends with it is learned
    np.testing.assert_allclose(aim[:3, 2], [2.75 + 18 / 8, 3.5 + 18 / 4, 3.0 + 18 / 2])
    np.testing.assert_array_equal(usable[:, 2], [False, False, False, True, True, True])
    # 3: the fourth record is not valid, so what comes before it ends with the third
    np.testing.assert_allclose(aim[:3, 3], [2.75 + 19 / 8, 3.5 + 19 / 4, 3.0 + 19 / 2])
    np.testing.assert_array_equal(usable[:, 3], [True, True, True, False, True, True])


def test_burn_in_makes_of_an_old_carry_the_one_that_these_params_have():
    algorithm = made()
    params = algorithm.init(jax.random.key(0)).params
    batch = some_batch(first=flags((3, 2)))
    values, following = algorithm.look(params, batch)
    whole = jnp.concatenate([batch.earlier.observation, batch.observation])
    first = jnp.concatenate([batch.earlier.first, batch.first])
    net = algorithm.net
    for n in range(COUNT):
        carry = batch.earlier.carry[n]
        for t in range(2 * LENGTH):
            carry = net.carry if first[t, n] else carry
            output = net.apply(params, carry, whole[t, n])
            carry = output.carry
            if t >= LENGTH:
                np.testing.assert_allclose(values[t - LENGTH, n], output.logits, rtol=1e-5, atol=1e-6)
                led_to = net.apply(params, carry, batch.following[t - LENGTH, n]).logits
                np.testing.assert_allclose(following[t - LENGTH, n], led_to, rtol=1e-5, atol=1e-6)
    alone = batch._replace(earlier=batch.earlier._replace(joined=jnp.zeros(COUNT, bool)))
    np.testing.assert_allclose(
        algorithm.look(params, alone)[0], algorithm.look(params, batch._replace(earlier=None))[0]
    )
    assert not np.allclose(algorithm.look(params, alone)[0], values)


def test_a_priority_is_mostly_the_largest_error_and_the_gradient_stays_out_of_the_burn_in():
    algorithm = made(n_step=1, priority_mix=0.75)
    state = algorithm.init(jax.random.key(0))
    batch = some_batch(terminated=np.ones((LENGTH, COUNT), bool), valid=~flags((4, 0), (5, 0)))
    value = jnp.take_along_axis(algorithm.look(state.params, batch)[0], batch.action[..., None], -1)[..., 0]
    size = np.abs(np.asarray(value))  # every step ends an episode without a reward: the aim is 0
    _, metrics, told = algorithm.learn_and_tell(state, batch)
    expected = [0.75 * size[:4, 0].max() + 0.25 * size[:4, 0].mean()]
    expected += [0.75 * size[:, n].max() + 0.25 * size[:, n].mean() for n in range(1, COUNT)]
    np.testing.assert_allclose(told.priority, expected, rtol=1e-5)
    assert np.isfinite(metrics["loss"])

    def loss(seen):
        earlier = batch.earlier._replace(observation=seen)
        return algorithm.loss(state.params, state.params, batch._replace(earlier=earlier))[0]

    assert not np.any(jax.grad(loss)(batch.earlier.observation))


def test_rescaled_values_come_back():
    values = jnp.array([-1e4, -3.0, -1e-3, 0.0, 0.5, 7.0, 1e5])
    np.testing.assert_allclose(unrescaled(rescaled(values)), values, rtol=2e-2, atol=1e-3)


def test_a_network_without_memory_is_refused():
    plain = weft.Network(
        lambda key: jnp.zeros(1), lambda p, c, x: weft.nets.NetworkOutput(jnp.zeros(3), jnp.zeros(()), c)
    )
    with pytest.raises(ConfigError, match="no memory"):
        made(network=plain)
