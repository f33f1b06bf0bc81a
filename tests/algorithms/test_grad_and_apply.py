"""Learn as its two halves: the base class puts them together, for one replica or several."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import acted_batch, bind, halves
from toys import farthest, prepared, same, train_state

import weft
from weft.core.errors import ConfigError
from weft.core.replicas import replica_axis
from weft.runtimes.loop.engines import make_engine

BOTH = [weft.IMPALA, weft.A2C]


@dataclass(frozen=True)
class Halved(weft.Algorithm):
    """Adds the mean reward to its only weight."""

    def grad(self, params, batch):
        return {"weight": batch.reward.mean()}, {"reward": batch.reward.mean()}

    def apply(self, state, gradients):
        params = {"weight": state.params["weight"] + gradients["weight"]}
        return state._replace(params=params, step=state.step + 1)


class Whole(Halved):
    def learn(self, state, batch):
        return state, {}


class OnlyGrad(weft.Algorithm):
    def grad(self, params, batch):
        return {}, {}


class OnlyApply(weft.Algorithm):
    def apply(self, state, gradients):
        return state


def test_which_algorithms_can_be_parted():
    assert Halved().splits
    assert not Whole().splits  # what its learn does, its halves need not do
    assert not OnlyGrad().splits
    assert not OnlyApply().splits
    assert not weft.Algorithm().splits
    assert not weft.PPO().splits  # several updates for each batch
    assert weft.IMPALA().splits
    assert weft.A2C().splits


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (weft.Algorithm, r"must define learn\(self, state, batch\) -> \(state, metrics\), or both grad.* and apply"),
        (OnlyGrad, "OnlyGrad must define .*; it has grad without the other half"),
        (OnlyApply, "OnlyApply must define .*; it has apply without the other half"),
    ],
)
def test_what_is_missing_is_said(cls, says):
    with pytest.raises(ConfigError, match=says):
        cls().learn(None, None)


def test_a_half_that_is_missing_is_said():
    with pytest.raises(ConfigError, match="OnlyApply must define grad"):
        OnlyApply().grad(None, None)
    with pytest.raises(ConfigError, match="OnlyGrad must define apply"):
        OnlyGrad().apply(None, None)


@pytest.mark.parametrize("recurrent", ["", "gru"])
@pytest.mark.parametrize("cls", BOTH)
def test_learn_is_grad_and_then_apply(cls, recurrent):
    algorithm = bind(cls, recurrent=recurrent)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    batch = acted_batch(algorithm, state.params)
    learned, metrics = jax.jit(algorithm.learn)(state, batch)
    gradients, mine = jax.jit(algorithm.grad)(state.params, batch)
    by_hand = jax.jit(algorithm.apply)(state, gradients)
    assert jax.tree.structure(gradients) == jax.tree.structure(state.params)
    assert farthest(learned.params, by_hand.params) < 1e-6
    assert farthest(learned.params, state.params) > 1e-3
    assert int(learned.step) == int(by_hand.step) == 1
    assert same(learned.key, state.key)
    assert metrics.keys() == mine.keys()


@pytest.mark.parametrize("cls", BOTH)
def test_the_mean_of_two_replicas_is_the_gradient_of_the_whole_batch(cls):
    algorithm = bind(cls)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    batch = acted_batch(algorithm, state.params)

    def learn(batch):
        with replica_axis("replica"):
            return algorithm.learn(state, batch)

    both, metrics = jax.jit(jax.vmap(learn, axis_name="replica"))(halves(batch))
    whole, expected = jax.jit(algorithm.learn)(state, batch)
    for replica in range(2):
        mine = jax.tree.map(lambda x, i=replica: x[i], both.params)
        assert farthest(mine, whole.params) < 1e-5
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], jnp.stack([value, value]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", BOTH)
def test_two_devices_learn_what_one_learns(cls):
    params = []
    for plan in ("inline", "(env+act+learn)*2"):
        algorithm = cls(unroll=4, hidden=(8,), learning_rate=0.01)
        engine = make_engine(prepared(algorithm, "weft:CartPole-v1", envs=8, plan=plan))
        engine.start()
        assert engine.advance(3)().finite
        params.append(jax.device_get(train_state(engine).params))
        engine.close()
    assert farthest(*params) < 1e-5
