"""What an unroll says, against values computed by hand, through the compiled loop and through the host's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SMALL, Counter, CounterGym, Probe, last_unroll, prepared, same, started, train_state, with_recorder

import weft
from weft.envs.jax_on_host import JaxOnHostFactory
from weft.envs.protocol import EnvSource
from weft.runtimes.compiled.rollout import Cut, bootstrap_all, bootstrap_once
from weft.runtimes.loop.engines import make_engine

ENVS = 2
LOOPS = ["compiled", "gymnasium", "jax on host"]


def open_loop(loop, ends, length=3):
    pure = Counter(length, ends)
    return {
        "compiled": pure,
        "gymnasium": lambda: CounterGym(length, ends),
        "jax on host": EnvSource("toys:Counter", pure.spec, host=JaxOnHostFactory(pure)),
    }[loop]


def column(*values):
    """The same for both environments: [T, B]."""
    return np.stack([np.array(values)] * ENVS, axis=1)


@pytest.fixture(
    scope="module", params=[(loop, ends) for loop in LOOPS for ends in ("truncated", "terminated")], ids="-".join
)
def two_unrolls(request):
    """The first two unrolls of four steps, in episodes of three."""
    loop, ends = request.param
    engine = started(Probe(), open_loop(loop, ends), envs=ENVS)
    unrolls = []
    for _ in range(2):
        report = engine.advance(1)()
        assert report.finite
        assert report.rewards_finite
        unrolls.append(last_unroll(engine))
    engine.close()
    return ends == "truncated", unrolls


def test_each_record_is_the_right_one(two_unrolls):
    cut, (first, second) = two_unrolls
    ended = [column(False, False, True, False), column(False, True, False, False)]
    for unroll, ends in zip((first, second), ended, strict=True):
        np.testing.assert_array_equal(unroll.truncated, ends & cut)
        np.testing.assert_array_equal(unroll.terminated, ends & (not cut))
        assert unroll.valid is None or unroll.valid.all()
    np.testing.assert_array_equal(first.observation[..., 0], column(0, 1, 2, 0))
    np.testing.assert_array_equal(second.observation[..., 0], column(1, 2, 0, 1))
    np.testing.assert_array_equal(first.reward, column(11, 12, 13, 11))
    np.testing.assert_array_equal(second.reward, column(12, 13, 11, 12))
    np.testing.assert_array_equal(first.first, column(True, False, False, True))
    np.testing.assert_array_equal(second.first, column(False, False, True, False))
    np.testing.assert_array_equal(first.last_observation[:, 0], [1, 1])
    np.testing.assert_array_equal(second.last_observation[:, 0], [2, 2])
    np.testing.assert_array_equal(first.last_first, [False, False])


def test_what_follows_one_unroll_begins_the_next(two_unrolls):
    _, (first, second) = two_unrolls
    np.testing.assert_array_equal(first.last_observation, second.observation[0])


def test_a_new_episode_is_a_new_one(two_unrolls):
    _, (first, second) = two_unrolls
    drawn = first.observation[..., 1]
    assert (drawn[:3] == drawn[0]).all()
    assert (drawn[3] != drawn[2]).all()
    assert (drawn[:, 0] != drawn[:, 1]).all(), "the environments drew the same"
    np.testing.assert_array_equal(second.observation[0, :, 1], drawn[3])


def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not(two_unrolls):
    cut, (first, second) = two_unrolls
    # weight * (steps in the observation) + 100 * (steps that act remembers); the weight is 2, then 3. The final
    # observation of an episode shows 3 steps; the one after its reset would show 0.
    ended = [2 * 3 + 300, 3 * 3 + 300] if cut else [0, 0]
    np.testing.assert_array_equal(first.bootstrap, column(0, 0, ended[0], 2 * 1 + 100))
    np.testing.assert_array_equal(second.bootstrap, column(0, ended[1], 0, 3 * 2 + 200))


def test_the_carry_begins_anew_with_each_episode(two_unrolls):
    _, (first, second) = two_unrolls
    np.testing.assert_array_equal(first.extras["steps"], column(1, 2, 3, 1))
    np.testing.assert_array_equal(second.extras["steps"], column(2, 3, 1, 2))
    np.testing.assert_array_equal(first.carry, [0, 0])
    np.testing.assert_array_equal(second.carry, [1, 1])


@pytest.mark.parametrize("loop", LOOPS)
def test_an_episode_that_is_cut_at_the_last_step_of_an_unroll(loop):
    engine = started(Probe(unroll=3), open_loop(loop, "truncated"), envs=ENVS)
    engine.advance(1)()
    unroll = last_unroll(engine)
    engine.close()
    np.testing.assert_array_equal(unroll.bootstrap, column(0, 0, 306))  # and not the 300 of the observation after reset
    np.testing.assert_array_equal(unroll.last_first, [True, True])
    np.testing.assert_array_equal(unroll.last_observation[:, 0], [0, 0])


@pytest.mark.parametrize("loop", ["compiled", "gymnasium"])
def test_unrolls_of_a_single_step(loop):
    engine = started(Probe(unroll=1), open_loop(loop, "truncated"), envs=ENVS)
    seen = []
    for _ in range(5):
        engine.advance(1)()
        unroll = last_unroll(engine)
        seen.append(
            (unroll.observation[0, 0, 0], unroll.carry[0], unroll.extras["steps"][0, 0], unroll.bootstrap[0, 0])
        )
    engine.close()
    weights = [2, 3, 4, 5, 6]
    following = [(1, 1), (2, 2), (3, 3), (1, 1), (2, 2)]  # the third from the final observation, not the one after it
    assert seen == [
        (at, before, now, weight * shown + 100 * remembered)
        for at, before, now, weight, (shown, remembered) in zip(
            [0, 1, 2, 0, 1], [0, 1, 2, 3, 1], [1, 2, 3, 1, 2], weights, following, strict=True
        )
    ]


class Recording(weft.PPO):
    """PPO that keeps the unroll it ate."""

    def graph(self):
        return with_recorder(super().graph())


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_looking_once_at_each_environment_gives_what_looking_at_all_gives(count):
    length, batch = 16, 8
    algorithm = Probe()
    random = np.random.default_rng(count)
    truncated = np.zeros((length, batch), np.bool_)
    for row in random.choice(batch, count, replace=False):  # once each
        truncated[random.integers(length), row] = True
    final = random.normal(size=(length, batch, 2)).astype(np.float32)
    carry = random.integers(0, 9, (length, batch)).astype(np.int32)
    after = random.normal(size=(batch, 2)).astype(np.float32), random.integers(0, 9, batch).astype(np.int32)
    weight, cut = {"weight": jnp.float32(2.0)}, Cut(truncated, carry, final)
    expected = np.zeros((length, batch), np.float32)
    expected[-1] = np.float32(2.0) * after[0][..., 0] + np.float32(100.0) * after[1]
    expected = np.where(truncated, np.float32(2.0) * final[..., 0] + np.float32(100.0) * carry, expected)
    for function in (bootstrap_once, bootstrap_all):
        found = jax.jit(function, static_argnums=0)(algorithm, weight, cut, after[1], after[0])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("limit", [None, 3, 100])
def test_truncation_against_the_declared_limit_is_reported(limit):
    """An environment that truncates every 3 steps and says that it lasts for 100 would be bootstrapped wrongly."""
    env = Counter(3, "truncated", limit=limit)
    engine = make_engine(prepared(Probe(unroll=8), env, envs=ENVS))
    engine.start()
    assert engine.advance(1)().cut_again == (limit == 100)


@pytest.fixture(scope="module", params=["", "gru"])
def with_invalid_records(request):
    """A bound PPO and an unroll of Gymnasium's native CartPole: there the step after an episode's end only resets."""
    fields = {**SMALL, "unroll": 32, "normalise_advantages": True}
    algorithm = Recording(**fields, recurrent=request.param, normalise_observations=True, normalise_rewards=True)
    run = prepared(algorithm, "CartPole-v1", envs=4, vector="native")
    engine = make_engine(run)
    engine.start()
    engine.advance(2)()
    unroll = last_unroll(engine)
    engine.close()
    state = jax.tree.map(jnp.copy, train_state(engine))
    return run.algorithm, state, unroll, jax.jit(run.algorithm.learn)


def test_a_step_that_only_resets_is_not_valid(with_invalid_records):
    _, _, unroll, _ = with_invalid_records
    ended = unroll.terminated | unroll.truncated
    resets = ~unroll.valid[1:]
    assert resets.sum() >= 2
    np.testing.assert_array_equal(resets, ended[:-1] & unroll.valid[:-1])
    assert (unroll.reward[~unroll.valid] == 0).all()
    assert unroll.first[1:][resets].all()
    np.testing.assert_array_equal(unroll.first[1:], ended[:-1])


def test_records_that_are_not_valid_teach_nothing(with_invalid_records):
    _, state, unroll, learn = with_invalid_records
    invalid = ~unroll.valid

    def disturbed(x, amount):
        where = invalid.reshape(invalid.shape + (1,) * (x.ndim - 2))
        return np.where(where, x + np.asarray(amount, x.dtype), x)

    other = unroll._replace(
        observation=disturbed(unroll.observation, 3.0),
        action=np.where(invalid, 1 - unroll.action, unroll.action),
        reward=disturbed(unroll.reward, 50.0),
        bootstrap=disturbed(unroll.bootstrap, 7.0),
        extras={name: disturbed(x, 5.0) for name, x in unroll.extras.items()},
    )
    assert not same(unroll, other)
    (plain, _), (changed, _) = learn(state, unroll), learn(state, other)
    assert same(plain, changed)
    # The check can fail: the same disturbance of a valid record is seen.
    seen = other.reward.copy()
    seen[np.argwhere(unroll.valid)[0][0], np.argwhere(unroll.valid)[0][1]] += 50.0
    assert not same(plain.params.network, learn(state, other._replace(reward=seen))[0].params.network)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_recurrent_learner_computes_what_act_computed(cell):
    """Over episode ends and unroll boundaries: before the first update the policy is the one that acted."""
    world = {"gru": "weft:CartPole-v1", "lstm": "CartPole-v1"}[cell]
    engine = started(weft.PPO(**SMALL, recurrent=cell), world, envs=8, vector="each")
    report = engine.advance(12)()
    engine.close()
    assert sum(episodes for episodes, _, _ in report.episodes[0]) > 5
    assert np.abs(report.metrics["approx_kl"]).max() < 1e-6
    assert report.metrics["entropy"][-1] != report.metrics["entropy"][0], "nothing was learned, so nothing was shown"
