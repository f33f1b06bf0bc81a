"""PPO in its loop: statistics, masks, every kind of space, and networks of the user's own."""

import io
import json
import math

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from toys import (
    SMALL,
    Anything,
    Counter,
    Masked,
    Measuring,
    farthest,
    last_unroll,
    prepared,
    started,
    train_state,
    with_recorder,
)

import weft
from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete, MultiDiscrete
from weft.envs.fake import ScriptedEnv
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource
from weft.runtimes.loop.engines import make_engine
from weft.telemetry.terminal import Terminal


class Recording(weft.PPO):
    """PPO that keeps the unroll it ate."""

    def graph(self):
        return with_recorder(super().graph())


@pytest.fixture(scope="module")
def normalising():
    """Two iterations with statistics of observations and returns: (algorithm, [(params after, unroll)], metrics)."""
    run = prepared(
        Recording(**SMALL, normalise_observations=True, normalise_rewards=True, discount=0.5), Counter(3), envs=4
    )
    engine = make_engine(run)
    engine.start()
    seen, metrics = [], []
    before = jax.device_get(train_state(engine).params)
    for _ in range(2):
        metrics.append(engine.advance(1)().metrics)
        seen.append((before, jax.device_get(train_state(engine).params), last_unroll(engine)))
        before = seen[-1][1]
    return run.algorithm, seen, metrics


def test_statistics_are_those_of_the_data(normalising):
    _, seen, _ = normalising
    everything = np.concatenate([unroll.observation.reshape(-1, 2) for _, _, unroll in seen]).astype(np.float64)
    first, last = seen[0][1].observations, seen[1][1].observations
    half = everything[:16]
    np.testing.assert_allclose(first.mean, half.mean(0), rtol=1e-5)
    np.testing.assert_allclose(first.var, half.var(0), rtol=1e-5)
    np.testing.assert_allclose(last.mean, everything.mean(0), rtol=1e-5)
    np.testing.assert_allclose(last.var, everything.var(0), rtol=1e-5)
    assert float(last.seen) == 32


def test_act_and_the_learner_look_through_the_same_statistics(normalising):
    """Through those from before the batch: else the policy would seem to have moved before its first update."""
    algorithm, seen, metrics = normalising
    assert max(float(np.abs(m["approx_kl"]).max()) for m in metrics) < 1e-6
    before, after, unroll = seen[1]
    value = jax.jit(jax.vmap(algorithm.bootstrap, (None, None, 0)))
    carry = algorithm.initial_carry()
    mine = value(before, carry, unroll.observation[0])
    np.testing.assert_allclose(mine, unroll.extras["value"][0], atol=1e-6)
    other = value(before._replace(observations=after.observations), carry, unroll.observation[0])
    assert float(jnp.abs(mine - other).max()) > 1e-4


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return(normalising):
    algorithm, seen, _ = normalising
    # What act remembers at a step is the return up to the reward before it. Rewards are 11, 12, 13 in each episode.
    returns = [0.0, 11.0, 0.5 * 11 + 12, 0.5 * (0.5 * 11 + 12) + 13]
    shown = [unroll.extras["discounted_return"] for _, _, unroll in seen]
    np.testing.assert_allclose(shown[0], np.tile(np.array(returns)[:, None], 4))
    np.testing.assert_allclose(shown[1][:, 0], [11.0, returns[2], returns[3], 11.0])
    last_returns = [np.full(4, 11.0), np.full(4, returns[2])]  # the fourth reward begins an episode; the eighth, 12
    # Counted are the returns up to and with the step's own reward, that of the last step too.
    counted = [np.concatenate([rows[1:], last[None]]) for rows, last in zip(shown, last_returns, strict=True)]
    everything = np.concatenate(counted).astype(np.float64)
    np.testing.assert_allclose(seen[1][1].returns.var, everything.var(), rtol=1e-5)
    np.testing.assert_allclose(seen[1][1].returns.mean, everything.mean(), rtol=1e-5)
    before, after, unroll = seen[1]
    plain = weft.PPO(**SMALL, discount=0.5).bind(algorithm.spec)
    scaled = unroll._replace(reward=unroll.reward / np.sqrt(after.returns.var + 1e-8))
    _, expected = jax.jit(plain._prepare)(before._replace(observations=None, returns=None), scaled)
    _, found = jax.jit(algorithm._prepare)(before, unroll)
    np.testing.assert_allclose(found.steps.target, expected.steps.target, rtol=1e-5)


@pytest.mark.parametrize("loop", ["compiled", "hosted"])
def test_a_masked_action_is_never_taken(loop):
    pure = Masked()
    where = {"pure": pure} if loop == "compiled" else {"host": JaxOnHostFactory(pure)}
    algorithm = Recording(**{**SMALL, "unroll": 16}, entropy_cost=0.0)
    engine = started(algorithm, EnvSource("toys:Masked", pure.spec, **where), envs=8)
    report = engine.advance(2)()
    unroll = last_unroll(engine)
    engine.close()
    assert report.finite
    assert (unroll.action_mask.sum(-1) == 1).all()
    np.testing.assert_array_equal(unroll.action, unroll.action_mask.argmax(-1))  # 128 draws
    assert set(unroll.action.reshape(-1).tolist()) == {0, 1, 2, 3}
    assert (unroll.reward == 1.0).all()
    np.testing.assert_allclose(unroll.extras["log_prob"], 0.0, atol=1e-6)
    assert np.abs(report.metrics["approx_kl"]).max() < 1e-6, "the learner's mask was not act's"


SPACES = {
    "dict, multi-discrete": ({"b": Box((2,)), "a": Discrete(3)}, MultiDiscrete((2, 3))),
    "image, box": (Box((8, 9, 2), "uint8", 0, 255), Box((2,), "float32", np.zeros(2), np.array([1.0, 4.0]))),
}


@pytest.mark.parametrize("kind", SPACES)
def test_every_kind_of_space_trains(kind):
    observation, action = SPACES[kind]
    engine = started(weft.PPO(**SMALL), Anything(observation, action), envs=4)
    before = jax.device_get(train_state(engine).params)
    report = engine.advance(2)()
    assert report.finite
    assert np.isfinite(np.concatenate(list(report.metrics.values()))).all()
    assert report.metrics["entropy"][0] != 0.0
    assert np.abs(report.metrics["approx_kl"]).max() < 1e-6
    assert farthest(before, train_state(engine).params) > 1e-4


GYM_SPACES = {
    "dict in tuple, multi-binary": (
        gym.spaces.Tuple(
            [
                gym.spaces.Dict(z=gym.spaces.Box(-1, 1, (2, 2), np.float64), a=gym.spaces.Discrete(3, start=1)),
                gym.spaces.MultiDiscrete([2, 4]),
                gym.spaces.MultiBinary(3),
            ]
        ),
        gym.spaces.MultiBinary(2),
    ),
    "discrete, squashed": (
        gym.spaces.Discrete(5),
        gym.spaces.Box(np.zeros(2), np.array([1, 4]), (2,), np.float64),
    ),
}


@pytest.mark.parametrize("kind", GYM_SPACES)
def test_spaces_of_gymnasium_train(kind):
    observation, action = GYM_SPACES[kind]
    taken = []

    def make():
        return ScriptedEnv(
            observation_space=observation, action_space=action, act=lambda env, action: taken.append(np.array(action))
        )

    fields = {"distribution": "squashed"} if "squashed" in kind else {}
    engine = started(weft.PPO(**SMALL, **fields), make, envs=4)
    report = engine.advance(2)()
    engine.close()
    assert report.finite
    assert np.abs(report.metrics["approx_kl"]).max() < 1e-6
    assert len({tuple(np.ravel(action)) for action in taken}) > 2
    if "squashed" in kind:  # in the environment's own units, and never outside
        low, high = np.min(taken, axis=0), np.max(taken, axis=0)
        assert (low >= 0).all()
        assert (high <= [1, 4]).all()
        assert high[1] > 1.0


def linear_init(key):
    return {"policy": jnp.zeros((2, 2)), "value": jnp.zeros(2)}


def linear_apply(params, observation):
    return observation @ params["policy"], observation @ params["value"]


def counting_apply(params, carry, observation):
    """Remembers how many steps the episode has, and values by that alone."""
    steps = carry + 1.0
    return weft.NetworkOutput(observation @ params["policy"], steps * params["value"][0] + steps, steps)


def test_a_network_of_the_users():
    engine = started(weft.PPO(**SMALL, network=(linear_init, linear_apply)), Counter(), envs=4)
    report = engine.advance(3)()
    params = train_state(engine).params.network
    assert set(params) == {"policy", "value"}
    assert report.finite
    assert float(params["value"][0]) > 0.0  # rewards are positive, and so must values be
    assert float(jnp.abs(params["policy"]).max()) > 0.0


def test_a_recurrent_network_of_the_users_begins_anew_with_each_episode():
    network = weft.Network(linear_init, counting_apply, np.float32(0.0))
    engine = started(Recording(**SMALL, network=network), Counter(3), envs=2)
    engine.advance(1)()
    unroll = last_unroll(engine)
    np.testing.assert_array_equal(unroll.extras["value"][:, 0], [1, 2, 3, 1])
    np.testing.assert_array_equal(unroll.bootstrap[:, 0], [0, 0, 4, 2])  # the final observation is the fourth one seen
    report = engine.advance(2)()
    assert np.abs(report.metrics["approx_kl"]).max() < 1e-6


@pytest.mark.parametrize(
    ("plan", "environment"),
    [
        ("inline", "weft:CartPole-v1"),
        ("inline", "CartPole-v1"),
        ("(env+act)*2 | learn", "CartPole-v1"),
        pytest.param("(env+act)*2 | learn", "weft:CartPole-v1", marks=pytest.mark.slow),
    ],
)
def test_what_an_overridden_loss_measures_is_logged(plan, environment, tmp_path):
    """One program, a host loop, and workers."""
    run = weft.train(
        Measuring(**SMALL), environment, envs=8, steps=96, plan=plan, run="measured", root=tmp_path, quiet=True
    )
    records = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        assert math.isfinite(record["loss/advantage_max"])
        assert record["loss/samples"] == 32
        assert record["loss/total"] == pytest.approx(
            record["loss/policy_loss"] + 0.5 * record["loss/value_loss"] - 0.01 * record["loss/entropy"], rel=1e-4
        )
    assert b"loss/advantage_max" in next((run.folder / "tensorboard").iterdir()).read_bytes()
    assert "advantage_max" in shown({name: value for name, value in records[-1].items() if value is not None})


def shown(record):
    """What the live table has of a record."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(Terminal(console=console)._draw(record))
    return console.export_text()


def test_a_metric_that_is_no_number_is_refused():
    class Wrong(weft.PPO):
        def loss(self, network, samples, entropy_cost):
            loss, metrics = super().loss(network, samples, entropy_cost)
            return loss, {**metrics, "advantages": samples.steps.advantage}

    engine = started(Wrong(**SMALL), Counter(), envs=4)
    with pytest.raises(ConfigError, match=r"metric 'advantages' has the shape \[16\]; a metric is one number"):
        engine.advance(1)


class Generous(Counter):
    """A counter whose rewards are ten times as large."""

    def step(self, state, action, key):
        state, transition = super().step(state, action, key)
        return state, transition._replace(reward=10.0 * transition.reward)


@pytest.mark.parametrize("normalise", [False, True])
def test_rewards_are_scaled_and_clipped_for_the_learner_alone(normalise):
    def learned(environment, **fields):
        engine = started(weft.PPO(**SMALL, **fields, normalise_rewards=normalise), environment, envs=4)
        report = engine.advance(3)()
        return train_state(engine).params, sum(total for _, total, _ in report.episodes[0])

    (plain, returns), (scaled, generous) = learned(Counter(3)), learned(Generous(3), reward_scale=0.1)
    assert farthest(plain, scaled) < 1e-6
    assert generous == pytest.approx(10 * returns)
    least = 1e-3  # below every reward of a counter: all become the same
    clipped, told = learned(Counter(3), reward_clip=least)
    (alike, ten) = learned(Generous(3), reward_clip=least)
    assert farthest(clipped, alike) < 1e-6
    assert (told, ten) == (returns, generous)
    if not normalise:
        assert farthest(clipped, plain) > 0
