"""SAC: its targets, its losses and its temperature by hand, how it acts, and what its fields are for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of, by_hand
from toys import same

import weft
from weft.core.types import Timestep

KEY = jax.random.key(7)
POLICY = jnp.array([0.5, -1.0])  # mean and log-deviation, each times the observation
CRITICS = (jnp.array([1.0, 2.0]), jnp.array([3.0, -1.0]))
BATCH = batch_of((1.0, 0.5, 1.0, 0.9, 2.0), (2.0, -0.5, 2.0, 0.0, 1.0))


def drawn_by_hand(observation, key=KEY):
    """Actions and log-densities as the paper's appendix C has them."""
    noise = np.asarray(jax.random.normal(key, (len(observation), 1)))[:, 0].astype(np.float64)
    mean, log_std = 0.5 * observation, -1.0 * observation
    before = mean + np.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(before), density - np.log(1 - np.tanh(before) ** 2)


def test_what_the_critics_are_moved_towards_by_hand():
    following = np.array([2.0, 1.0])
    action, log_prob = drawn_by_hand(following)
    lowest = np.minimum(following + 2 * action, 3 * following - action)
    aim = by_hand(weft.SAC).aim(POLICY, CRITICS, jnp.float32(0.3), BATCH, KEY)
    np.testing.assert_allclose(aim, [1 + 0.9 * (lowest[0] - 0.3 * log_prob[0]), 2.0], rtol=1e-5)


def test_the_losses_by_hand():
    algorithm = by_hand(weft.SAC)
    loss, (value, error) = algorithm.critic_loss(CRITICS, BATCH, jnp.array([1.0, 0.0]))
    # Values 1 + 1 and 3 - 0.5 of the first step, 2 - 1 and 6 + 0.5 of the second; they should be 1 and 0.
    assert float(loss) == pytest.approx((1 + 1.5**2 + 1 + 6.5**2) / 2 / 2)
    assert float(value) == pytest.approx((2 + 2.5 + 1 + 6.5) / 4)
    np.testing.assert_allclose(error, [(1 + 1.5) / 2, (1 + 6.5) / 2])
    half = BATCH._replace(weight=np.array([0.5, 0.0], np.float32), reward=np.array([1.0, np.nan], np.float32))
    assert float(algorithm.critic_loss(CRITICS, half, jnp.array([1.0, np.nan]))[0]) == pytest.approx(
        0.5 * (1 + 1.5**2) / 2
    )

    now = np.array([1.0, 2.0])
    action, log_prob = drawn_by_hand(now)
    lowest = np.minimum(now + 2 * action, 3 * now - action)
    loss, entropy = algorithm.policy_loss(POLICY, CRITICS, jnp.float32(0.3), BATCH, KEY)
    assert float(loss) == pytest.approx((0.3 * log_prob - lowest).mean(), rel=1e-5)
    assert float(entropy) == pytest.approx(-log_prob.mean(), rel=1e-5)


@pytest.mark.parametrize(("target", "aimed"), [(None, -1.0), (-0.5, -0.5)])
def test_the_temperature_rises_where_there_is_too_little_entropy(target, aimed):
    algorithm = by_hand(weft.SAC, target_entropy=target, learning_rate=0.1)
    for entropy in (-3.0, aimed, 0.7):
        slope = jax.grad(algorithm.temperature_loss)(jnp.float32(-1.0), jnp.float32(entropy))
        assert float(slope) == pytest.approx(entropy - aimed)
    state = algorithm.init(KEY)
    tight = state._replace(params=state.params._replace(network=jnp.array([0.0, -5.0])))
    log = algorithm.learn(tight, BATCH)[0].optimizer.log_temperature.weights
    assert float(log) == pytest.approx(0.1, abs=1e-4)  # Adam's first step is the rate
    log = algorithm.learn(state, BATCH)[0].optimizer.log_temperature.weights  # a deviation of 1: more than enough
    assert float(log) == pytest.approx(-0.1, abs=1e-4)
    fixed = by_hand(weft.SAC, adapt_temperature=False, temperature=0.5)
    state, metrics = fixed.learn(fixed.init(KEY), BATCH)
    state, metrics = fixed.learn(state, BATCH)
    assert float(metrics["temperature"]) == pytest.approx(0.5)


def test_target_critics_go_a_part_of_the_way():
    algorithm = by_hand(weft.SAC, target_rate=0.25, learning_rate=0.1)
    before = algorithm.init(KEY)
    after, _ = algorithm.learn(before, BATCH)
    for old, new, target in zip(
        before.optimizer.target, after.optimizer.critics.weights, after.optimizer.target, strict=True
    ):
        assert not same(old, new)
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-6)


def test_the_policy_learns_from_critics_that_have_learned_this_batch():
    algorithm = by_hand(weft.SAC, learning_rate=0.1)
    before = algorithm.init(KEY)
    after, metrics = algorithm.learn(before, BATCH)
    now, _ = jax.random.split(jax.random.fold_in(before.key, 0))
    loss, _ = algorithm.policy_loss(
        before.params.network, after.optimizer.critics.weights, jnp.float32(1.0), BATCH, now
    )
    assert float(metrics["policy_loss"]) == pytest.approx(float(loss), rel=1e-5)


def test_actions_are_random_until_learning_begins_and_then_the_policys():
    algorithm = by_hand(weft.SAC, learning_begins=64)  # 8 environments: 8 steps of each
    no = jnp.zeros((), bool)
    timestep = Timestep(jnp.array([1.0]), jnp.float32(0), no, no)
    params = algorithm.init(KEY).params._replace(network=jnp.array([0.3, -9.0]))
    keys = jax.random.split(KEY, 2_000)
    for step, random in ((0, True), (7, True), (8, False), (500, False), (2**31 - 1, False)):
        act = jax.vmap(lambda key, step=step: algorithm.act_at(params, (), timestep, key, jnp.int32(step)).action)
        actions = act(keys)
        assert actions.shape == (2_000, 1)
        assert float(actions.std()) == pytest.approx(1 / 3**0.5 if random else 0.0, abs=0.02)
        assert float(actions.mean()) == pytest.approx(0.0 if random else np.tanh(0.3), abs=0.05)
    assert float(algorithm.greedy(params, (), timestep).action[0]) == pytest.approx(np.tanh(0.3))
