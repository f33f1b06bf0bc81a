"""IMPALA and A2C in their loop: every kind of space, masks, and networks of the user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Anything, Counter, Masked, farthest, last_unroll, started, train_state, with_recorder

import weft
from weft.core.specs import Box, Discrete, MultiDiscrete
from weft.envs.fake import ScriptedEnv
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource

FIELDS = {"unroll": 4, "hidden": (8,), "recurrent_size": 8, "learning_rate": 0.01}
BOTH = [weft.IMPALA, weft.A2C]
SPACES = {
    "dict, multi-discrete": ({"b": Box((2,)), "a": Discrete(3)}, MultiDiscrete((2, 3)), ""),
    "image, box, recurrent": (Box((8, 9, 2), "uint8", 0, 255), Box((2,), "float32", 0.0, 4.0), "lstm"),
}


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("kind", SPACES)
def test_every_kind_of_space_trains(kind, cls):
    observation, action, recurrent = SPACES[kind]
    engine = started(cls(**FIELDS, recurrent=recurrent), Anything(observation, action), envs=4)
    before = jax.device_get(train_state(engine).params)
    report = engine.advance(2)()
    assert report.finite
    assert report.metrics["entropy"][0] != 0.0
    assert farthest(before, train_state(engine).params) > 1e-4
    if cls is weft.IMPALA:  # nothing is stale: the learner sees what act saw
        assert np.abs(report.metrics["approx_kl"]).max() < 1e-5
        np.testing.assert_allclose(report.metrics["weight"], 1.0, atol=1e-3)


class RecordingIMPALA(weft.IMPALA):
    def graph(self):
        return with_recorder(super().graph())


class RecordingA2C(weft.A2C):
    def graph(self):
        return with_recorder(super().graph())


@pytest.mark.parametrize("loop", ["compiled", "hosted"])
@pytest.mark.parametrize("cls", [RecordingIMPALA, RecordingA2C])
def test_a_masked_action_is_never_taken(cls, loop):
    pure = Masked()
    where = {"pure": pure} if loop == "compiled" else {"host": JaxOnHostFactory(pure)}
    source = EnvSource("toys:Masked", pure.spec, **where)
    engine = started(cls(**{**FIELDS, "unroll": 16}, entropy_cost=0.0), source, envs=8)
    report = engine.advance(2)()
    unroll = last_unroll(engine)
    engine.close()
    assert report.finite
    np.testing.assert_array_equal(unroll.action, unroll.action_mask.argmax(-1))  # 128 draws
    assert (unroll.reward == 1.0).all()
    np.testing.assert_allclose(report.metrics["entropy"], 0.0, atol=1e-5)  # there was never a choice


@pytest.mark.parametrize("recurrent", ["", "gru"])
@pytest.mark.parametrize("cls", BOTH)
def test_it_trains_around_a_host_environment(cls, recurrent):
    engine = started(cls(**FIELDS, recurrent=recurrent), lambda: ScriptedEnv(), envs=4)
    report = engine.advance(3)()
    engine.close()
    assert report.finite
    if cls is weft.IMPALA:
        assert np.abs(report.metrics["approx_kl"]).max() < 1e-5


def counting_apply(params, carry, observation):
    """Remembers how many steps the episode has, and values by that alone."""
    steps = carry + 1.0
    return weft.NetworkOutput(observation @ params["policy"], steps * params["value"], steps)


def counting_init(key):
    return {"policy": jnp.zeros((2, 2)), "value": jnp.ones(())}


@pytest.mark.parametrize("cls", BOTH)
def test_a_recurrent_network_of_the_users_begins_anew_with_each_episode(cls):
    """Counter gives 11, 12, 13 and cuts; the value of an episode's n-th step is n. One step ahead, without discount:

    11 + 2 - 1, 12 + 3 - 2, 13 + 4 - 3 (what would have followed the cut is the fourth), 11 + 2 - 1.
    """
    network = weft.Network(counting_init, counting_apply, np.float32(0.0))
    fields = {"network": network, "discount": 1.0, "trace_decay": 0.0, "entropy_cost": 0.0}
    engine = started(cls(**FIELDS, **fields), Counter(3), envs=2)
    report = engine.advance(1)()
    errors = np.array([12.0, 13.0, 14.0, 12.0])
    np.testing.assert_allclose(report.metrics["value_loss"], 0.5 * np.mean(errors**2), rtol=1e-5)
