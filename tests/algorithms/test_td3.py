"""TD3: its targets and its losses by hand, its delay, and DDPG as a case of its fields."""

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
CRITICS = (jnp.array([1.0, 2.0]), jnp.array([3.0, -1.0]))
BATCH = batch_of((1.0, 0.5, 1.0, 0.9, 2.0), (2.0, -0.5, 2.0, 0.0, 1.0))


def learner(algorithm, policy):
    return algorithm.init(KEY).optimizer._replace(
        target=CRITICS[: algorithm.critics], target_policy=jnp.array([policy])
    )


@pytest.mark.parametrize(("smoothing", "clip"), [(0.0, 0.5), (0.2, 0.5), (5.0, 0.1)])
def test_what_the_critics_are_moved_towards_by_hand(smoothing, clip):
    algorithm = by_hand(weft.TD3, smoothing=smoothing, smoothing_clip=clip)
    noise = np.clip(smoothing * np.asarray(jax.random.normal(KEY, (2, 1)))[:, 0], -clip, clip)
    action = np.clip(np.tanh(0.4 * np.array([2.0, 1.0])) + noise, -1, 1)
    lowest = np.minimum(2.0 + 2 * action, 3 * 2.0 - action)
    aim = algorithm.aim(learner(algorithm, 0.4), BATCH, KEY)
    np.testing.assert_allclose(aim, [1 + 0.9 * lowest[0], 2.0], rtol=1e-6)


def test_ddpg_is_a_case_of_its_fields():
    ddpg = by_hand(weft.TD3, critics=1, policy_delay=1, smoothing=0.0)
    aim = ddpg.aim(learner(ddpg, 0.4), BATCH, KEY)
    np.testing.assert_allclose(aim, [1 + 0.9 * (2.0 + 2 * np.tanh(0.8)), 2.0], rtol=1e-6)
    state, _ = ddpg.learn(ddpg.init(KEY), BATCH)
    assert not same(state.params, ddpg.init(KEY).params)


def test_the_policy_follows_the_first_critic():
    algorithm = by_hand(weft.TD3)
    now = np.array([1.0, 2.0])
    loss, slope = jax.value_and_grad(algorithm.policy_loss)(jnp.array([0.4]), CRITICS, BATCH)
    action = np.tanh(0.4 * now)
    assert float(loss) == pytest.approx(-(now + 2 * action).mean(), rel=1e-6)
    assert float(slope[0]) == pytest.approx(-(2 * (1 - action**2) * now).mean(), rel=1e-5)


def test_policy_and_targets_move_in_every_second_learn_call():
    algorithm = by_hand(weft.TD3, policy_delay=2, target_rate=0.5, learning_rate=0.1)
    state, moved = algorithm.init(KEY), []
    for _ in range(5):
        new, _ = algorithm.learn(state, BATCH)
        still = [
            same(state.params, new.params),
            same(state.optimizer.policy, new.optimizer.policy),
            same(state.optimizer.target, new.optimizer.target),
            same(state.optimizer.target_policy, new.optimizer.target_policy),
        ]
        assert len(set(still)) == 1
        assert not same(state.optimizer.critics, new.optimizer.critics)
        moved.append(not still[0])
        if moved[-1]:
            half = (state.optimizer.target_policy + new.params.network) / 2
            np.testing.assert_allclose(new.optimizer.target_policy, half, rtol=1e-6)
        state = new
    assert moved == [False, True, False, True, False]


def test_noise_is_added_to_the_policys_action_within_the_bounds():
    algorithm = by_hand(weft.TD3, noise=0.3, learning_begins=64)
    no = jnp.zeros((), bool)
    timestep = Timestep(jnp.array([1.0]), jnp.float32(0), no, no)
    params = algorithm.init(KEY).params._replace(network=jnp.array([0.1]))
    keys = jax.random.split(KEY, 5_000)
    actions = jax.vmap(lambda key: algorithm.act_at(params, (), timestep, key, jnp.int32(8)).action)(keys)
    assert float(actions.mean()) == pytest.approx(np.tanh(0.1), abs=0.02)
    assert float(actions.std()) == pytest.approx(0.3, abs=0.02)
    edge = params._replace(network=jnp.array([9.0]))
    actions = jax.vmap(lambda key: algorithm.act_at(edge, (), timestep, key, jnp.int32(8)).action)(keys)
    assert float(actions.max()) <= 1.0
    assert float(algorithm.greedy(params, (), timestep).action[0]) == pytest.approx(np.tanh(0.1))
