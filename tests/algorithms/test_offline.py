"""BC and IQL: their losses by hand, and what they say of data that do not fit."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import batch_of
from recorded import folder_of
from toys import Anything, same

import weft
from weft.algorithms.offline import NoData
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete
from weft.data import Dataset, Episode

LINE = EnvSpec("toys:Line", Box((1,)), Box((1,), "float32", -2.0, 2.0))
KEY = jax.random.key(7)


def bound(cls, spec=LINE, **fields):
    return cls(**{"unroll": 4, "hidden": (8,), "batch": 8, "data": NoData(), **fields}).bind(weft.Spec(spec, 4, 100))


def by_hand(**fields):
    """The mean of an action is the weight times what is seen, its deviation 1, and the value twice what is seen."""

    def apply(params, observation):
        logits = jnp.concatenate([observation * params["mean"], 0 * observation], axis=-1)
        return logits, params["value"] * observation[..., 0]

    net = (lambda key: {"mean": jnp.float32(0.5), "value": jnp.float32(2.0)}, apply)
    return {"network": net, **fields}


BATCH = batch_of((1.0, 0.5, 1.0, 0.9, 2.0), (2.0, -0.5, 2.0, 0.0, 1.0))
LOG_PROB = -0.5 * np.array([0.0, 1.5]) ** 2 - 0.5 * np.log(2 * np.pi)


def test_cloning_raises_the_probability_of_what_was_done():
    algorithm = bound(weft.BC, **by_hand(entropy_cost=0.1))
    params = algorithm.init(KEY).params.network
    loss, metrics = algorithm.loss(params, BATCH)
    entropy = 0.5 * (1 + np.log(2 * np.pi))
    assert float(loss) == pytest.approx(-LOG_PROB.mean() - 0.1 * entropy, rel=1e-5)
    assert float(metrics["log_prob"]) == pytest.approx(LOG_PROB.mean(), rel=1e-5)
    state, _ = algorithm.learn(algorithm.init(KEY), BATCH)
    assert float(algorithm.loss(state.params.network, BATCH)[1]["log_prob"]) > LOG_PROB.mean()
    assert int(state.step) == 1


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_iqls_losses_by_hand(expectile):
    algorithm = bound(weft.IQL, **by_hand(expectile=expectile, temperature=0.5, weight_clip=5.0))
    params = algorithm.init(KEY).params.network
    worth = jnp.array([3.0, 3.5])  # the values are 2 and 4
    loss, metrics = algorithm.loss(params, BATCH, worth)
    error = np.array([1.0, -0.5])
    value_loss = (np.array([expectile, 1 - expectile]) * error**2).mean()
    weight = np.minimum(np.exp(error / 0.5), 5.0)
    assert weight[0] == 5.0
    assert float(metrics["value_loss"]) == pytest.approx(value_loss, rel=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(-(weight * LOG_PROB).mean(), rel=1e-5)
    assert float(loss) == pytest.approx(value_loss - (weight * LOG_PROB).mean(), rel=1e-5)
    slope = jax.grad(lambda p: algorithm.loss(p, BATCH, worth)[0])(params)
    by_value = -2 * (np.array([expectile, 1 - expectile]) * error * np.array([1.0, 2.0])).mean()
    assert float(slope["value"]) == pytest.approx(by_value, rel=1e-4)  # the weights of the policy's loss are constants


def test_iqls_critics_aim_at_the_reward_and_the_value_of_what_followed():
    """A terminated step at its reward alone."""
    aims = []

    @dataclasses.dataclass(frozen=True)
    class Telling(weft.IQL):
        def critic_loss(self, critics, batch, action, aim):
            aims.append(aim)
            return super().critic_loss(critics, batch, action, aim)

    algorithm = bound(Telling, **by_hand(learning_rate=1e-9, target_rate=0.5))
    before = algorithm.init(KEY)
    state, _ = algorithm.learn(before, BATCH)
    np.testing.assert_allclose(aims[0], [1 + 0.9 * 4.0, 2.0], rtol=1e-5)
    half = jax.tree.map(lambda old, new: (old + new) / 2, before.optimizer.target, state.optimizer.critics.weights)
    for a, b in zip(jax.tree.leaves(half), jax.tree.leaves(state.optimizer.target), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("cls", "action"),
    [
        (weft.IQL, Discrete(3)),
        (weft.IQL, MultiDiscrete((2, 3))),
        (weft.BC, MultiBinary(3)),
        (weft.IQL, Box((2, 1), "float32", -1.0, 1.0)),
        (weft.BC, Box((2,))),
    ],
)
def test_any_actions_and_observations_can_be_learned_from(cls, action):
    nested = {"a": Box((2,)), "b": Discrete(3)}
    spec = Anything(nested, action).spec
    algorithm = bound(cls, spec, normalise_observations=True, hidden=(8, 8))
    _, batch = algorithm.replay.draw(algorithm.replay.init(None, KEY))
    state = algorithm.init(KEY)
    after, metrics = jax.jit(algorithm.learn)(state, batch)
    assert all(np.isfinite(float(x)) for x in metrics.values())
    assert not same(after.params.network, state.params.network)


def test_critics_see_numbered_actions_as_ones_and_zeros():
    spec = EnvSpec("toys:Table", Box((1,)), MultiDiscrete((2, 3)))
    assert bound(weft.IQL, spec).shown(jnp.array([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_it_acts_by_the_likeliest_action_whatever_the_key():
    algorithm = bound(weft.BC, **by_hand())
    params = algorithm.init(KEY).params
    no = jnp.zeros((), bool)
    timestep = weft.Timestep(jnp.array([3.0]), jnp.float32(0), no, no)
    for seed in range(3):
        assert float(algorithm.act(params, (), timestep, jax.random.key(seed)).action[0]) == pytest.approx(1.5)


# ---- what cannot be -------------------------------------------------------------------------------------------------


def refused(environment="weft:CartPole-v1", **fields):
    with pytest.raises(ConfigError) as caught:
        weft.train("bc", environment, quiet=True, tensorboard=False, **fields)
    return str(caught.value)


def test_data_that_cannot_be_learned_from_are_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused().startswith("BC learns from a data set, and data is ''. Record one with `weft record RUN DIR`")
    assert refused(data="nowhere").startswith("there is no folder 'nowhere'; expected a data set")
    words = refused(data=folder_of("Pendulum-v1"))
    assert "was recorded in 'Pendulum-v1', whose observations are Box[3] float32; those of environment" in words
    words = refused("weft:MountainCar-v0", data=folder_of("CartPole-v1"))
    assert "whose observations are Box[4] float32; those of environment 'weft:MountainCar-v0' are Box[2]" in words
    assert "Set recurrent to none" in refused(data=folder_of("CartPole-v1"), recurrent="gru")
    three = EnvSpec("Three", Box((4,)), Discrete(3))
    no = np.zeros(1, np.bool_)
    one = Episode(np.zeros((2, 4), np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32), no, no)
    Dataset.from_episodes(three, [one]).save("three")
    words = refused(data="three")
    assert "whose actions are Discrete(3); those of environment 'weft:CartPole-v1' are Discrete(2)" in words
    assert not (tmp_path / "runs").exists()
