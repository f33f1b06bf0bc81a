"""IMPALA's and A2C's own arithmetic, on batches made by hand; the maths below it is tested in tests/ops."""

import importlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import LINEAR, acted_batch, bind, one_step
from toys import farthest, same

import weft
from weft.algorithms.actor_critic import ActorCritic
from weft.cli.comments import field_comments
from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import Box, EnvSpec

BOTH = [weft.IMPALA, weft.A2C]


@pytest.fixture(scope="module")
def rlax():
    with warnings.catch_warnings():  # it imports what newer versions of JAX deprecate
        warnings.simplefilter("ignore")
        return importlib.import_module("rlax")


def state_of(algorithm, seed=0):
    """A state whose policy has opinions: fresh heads give every action about the same probability."""
    random = np.random.default_rng(seed)
    state = jax.jit(algorithm.init)(jax.random.key(seed))
    params = jax.tree.map(lambda x: x + 0.3 * random.normal(size=x.shape).astype(np.float32), state.params)
    return state._replace(params=params)


def rlax_loss(rlax, algorithm, batch, advantages):
    """The loss of the whole batch by rlax; ``advantages`` gives an environment's errors and advantages."""

    def one(params, observation, following, action, *rest):
        logits, value = jax.vmap(lambda x: algorithm.net.apply(params, (), x)[:2])(observation)
        after = algorithm.net.apply(params, (), following).value
        errors, advantage = advantages(logits, value, after, action, *rest)
        weights = jnp.ones_like(value)
        policy = rlax.policy_gradient_loss(logits, action, jax.lax.stop_gradient(advantage), weights)
        return (
            policy
            + algorithm.value_cost * 0.5 * jnp.mean(jnp.square(errors))
            + algorithm.entropy_cost * rlax.entropy_loss(logits, weights)
        )

    def whole(params):
        per_env = jax.vmap(one, (None, 1, 0, 1, 1, 1) + (1,) * len(batch.extras))
        discount = jnp.where(batch.terminated, 0.0, algorithm.discount)
        rest = [batch.action, batch.reward, discount, *batch.extras.values()]
        return per_env(params, batch.observation, batch.last_observation, *rest).mean()

    return whole


@pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")
@pytest.mark.parametrize("trace_decay", [1.0, 0.9])
def test_impala_has_the_gradient_of_rlax(rlax, trace_decay):
    """On a stale batch without truncations, which rlax does not know."""
    algorithm = bind(weft.IMPALA, trace_decay=trace_decay, clip_rho=1.3)
    params, older = state_of(algorithm).params, state_of(algorithm, 1).params
    batch = acted_batch(algorithm, older, truncate=False)

    def advantages(logits, value, after, action, reward, discount, log_prob):
        ratio = jnp.exp(rlax.batched_index(jax.nn.log_softmax(logits), action) - log_prob)
        following = jnp.concatenate([value[1:], after[None]])
        # our c is clipped at 1 and rho at 1.3; theirs clips c at 1 always
        result = rlax.vtrace_td_error_and_advantage(
            value, jax.lax.stop_gradient(following), reward, discount, ratio, trace_decay, 1.3, 1.3
        )
        return result.errors, result.pg_advantage

    expected, gradients = jax.jit(jax.value_and_grad(rlax_loss(rlax, algorithm, batch, advantages)))(params)
    found, metrics = jax.jit(algorithm.grad)(params, batch)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-4)
    assert farthest(found, gradients) < 1e-5
    assert float(metrics["approx_kl"]) > 1e-4


@pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")
@pytest.mark.parametrize("trace_decay", [1.0, 0.9])
def test_a2c_has_the_gradient_of_rlax(rlax, trace_decay):
    algorithm = bind(weft.A2C, trace_decay=trace_decay)
    params = state_of(algorithm).params
    batch = acted_batch(algorithm, params, truncate=False)

    def advantages(logits, value, after, action, reward, discount):
        values = jax.lax.stop_gradient(jnp.concatenate([value, after[None]]))
        target = rlax.lambda_returns(reward, discount, values[1:], trace_decay)
        return target - value, target - value

    expected, gradients = jax.jit(jax.value_and_grad(rlax_loss(rlax, algorithm, batch, advantages)))(params)
    found, metrics = jax.jit(algorithm.grad)(params, batch)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-4)
    assert farthest(found, gradients) < 1e-5


@pytest.mark.parametrize("recurrent", ["", "gru", "lstm"])
def test_without_lag_impala_is_a2c(recurrent):
    """Then every ratio is 1 and V-trace is GAE; and the learner's carry began anew wherever act's did."""
    impala, a2c = (bind(cls, recurrent=recurrent, trace_decay=0.95) for cls in BOTH)
    params = state_of(impala).params
    batch = acted_batch(impala, params)
    assert batch.first.any()
    assert batch.truncated.any()
    (mine, metrics), (theirs, expected) = jax.jit(impala.grad)(params, batch), jax.jit(a2c.grad)(params, batch)
    assert farthest(mine, theirs) < 1e-5
    assert float(metrics["loss"]) == pytest.approx(float(expected["loss"]), abs=1e-5)
    assert float(metrics["approx_kl"]) < 1e-6
    assert float(metrics["weight"]) == pytest.approx(1.0, abs=1e-6)
    if recurrent:  # the check can fail: a carry that goes on gives other log-probabilities
        on = batch._replace(first=np.zeros_like(batch.first))
        assert float(jax.jit(impala.grad)(params, on)[1]["approx_kl"]) > 1e-4


# One step with reward 13 and discount 0.5, from a state worth 2. Where it goes on, the learner thinks the next state
# worth 10, and act thought it worth 3.
FOLLOWS = {("IMPALA", ""): 10, ("A2C", ""): 3, ("IMPALA", "cut"): 3, ("A2C", "cut"): 3}


@pytest.mark.parametrize("ends", ["", "cut", "ended"])
@pytest.mark.parametrize("cls", BOTH)
def test_what_follows_a_step(cls, ends):
    algorithm = bind(cls, network=LINEAR, discount=0.5, unroll=1, envs=1)
    params = LINEAR[0](None)
    batch = one_step(params, ends=ends, log_prob=np.log(1 / 3))
    target = 13 + 0.5 * FOLLOWS.get((cls.__name__, ends), 0)
    _, metrics = algorithm.grad(params, batch)
    assert float(metrics["value_loss"]) == pytest.approx(0.5 * (target - 2) ** 2, rel=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(np.log(3) * (target - 2), rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "clip_rho", "weight"), [(1.0, 1.0, 1.0), (4.0, 1.0, 1.0), (0.25, 1.0, 0.25), (4.0, 2.0, 2.0)]
)
def test_a_stale_step_weighs_what_v_trace_says(ratio, clip_rho, weight):
    """``ratio``: how much likelier the action is now than it was when it was taken."""
    fields = {"network": LINEAR, "discount": 0.5, "unroll": 1, "envs": 1, "entropy_cost": 0.0}
    algorithm = bind(weft.IMPALA, clip_rho=clip_rho, **fields)
    params = LINEAR[0](None)
    gradients, metrics = algorithm.grad(params, one_step(params, ends="ended", log_prob=np.log(1 / 3 / ratio)))
    fresh, _ = bind(weft.IMPALA, **fields).grad(params, one_step(params, ends="ended", log_prob=np.log(1 / 3)))
    assert float(metrics["weight"]) == pytest.approx(weight)
    # d/dlogits of -log p(action 0) is p - onehot; the advantage 13 - 2 and both observations are 1
    expected = weight * 11 * np.array([[-2 / 3, 1 / 3, 1 / 3]] * 2)
    np.testing.assert_allclose(gradients["policy"], expected, rtol=1e-5)
    np.testing.assert_allclose(gradients["value"], weight * np.asarray(fresh["value"]), rtol=1e-5)
    assert float(fresh["value"][0]) == pytest.approx(0.5 * (2 - 13))


def test_a_batch_that_the_policy_would_never_make_is_survived():
    """Ratios of e^±200 overflow; the gradient and the metrics stay finite numbers."""
    algorithm = bind(weft.IMPALA)
    params = state_of(algorithm).params
    batch = acted_batch(algorithm, params)
    for shift in (-200.0, 200.0):
        stale = batch._replace(extras={"log_prob": batch.extras["log_prob"] + np.float32(shift)})
        gradients, metrics = jax.jit(algorithm.grad)(params, stale)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((gradients, metrics)))


@pytest.mark.parametrize("recurrent", ["", "gru"])
@pytest.mark.parametrize("cls", BOTH)
def test_records_that_are_not_valid_teach_nothing(cls, recurrent):
    algorithm = bind(cls, recurrent=recurrent, normalise_advantages=True)
    params = state_of(algorithm).params
    batch = acted_batch(algorithm, params, resets=True)
    invalid = ~batch.valid
    assert 2 <= invalid.sum() < invalid.size / 2

    def disturbed(x, amount):
        return np.where(invalid.reshape(invalid.shape + (1,) * (x.ndim - 2)), x + np.asarray(amount, x.dtype), x)

    other = batch._replace(
        action=np.where(invalid, 2 - batch.action, batch.action),
        reward=disturbed(batch.reward, 50.0),
        bootstrap=disturbed(batch.bootstrap, 7.0),
        extras={name: disturbed(x, 5.0) for name, x in batch.extras.items()},
    )
    grad = jax.jit(algorithm.grad)
    assert same(grad(params, batch), grad(params, other))
    seen = np.where(np.cumsum(batch.valid.ravel()).reshape(batch.valid.shape) == 1, 50.0, batch.reward)
    assert not same(grad(params, batch), grad(params, batch._replace(reward=seen.astype(np.float32))))


@pytest.mark.parametrize("cls", BOTH)
def test_rewards_are_scaled_and_then_held(cls):
    fields = {"network": LINEAR, "unroll": 1, "envs": 1}
    params = LINEAR[0](None)
    batch = one_step(params, ends="ended", log_prob=np.log(1 / 3))
    for reward, shaping in ((13, {}), (26, {"reward_scale": 2.0}), (20, {"reward_scale": 2.0, "reward_clip": 20.0})):
        _, metrics = bind(cls, **fields, **shaping).grad(params, batch)
        assert float(metrics["value_loss"]) == pytest.approx(0.5 * (reward - 2) ** 2, rel=1e-5)


@pytest.mark.parametrize("cls", BOTH)
def test_each_cost_changes_the_loss_as_it_says(cls):
    algorithm = bind(cls)
    params = state_of(algorithm).params
    batch = acted_batch(algorithm, params)
    m = algorithm.with_fields(value_cost=3.0, entropy_cost=2.0).bind(algorithm.spec).grad(params, batch)[1]
    assert float(m["loss"]) == pytest.approx(
        float(m["policy_loss"] + 3.0 * m["value_loss"] - 2.0 * m["entropy"]), abs=1e-5
    )


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("cls", BOTH)
def test_the_learning_rate_sinks_to_its_end(cls, optimizer):
    algorithm = bind(cls, learn_steps=2, learning_rate_end=0.0, optimizer=optimizer)
    state = state_of(algorithm)
    batch = acted_batch(algorithm, state.params)
    learn, moves = jax.jit(algorithm.learn), []
    for _ in range(3):
        new, _ = learn(state, batch)
        moves.append(farthest(new.params, state.params))
        state = new
    assert moves[0] > moves[1] > 0.0
    assert moves[2] == 0.0


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"unroll": 0}, "unroll must be at least 1"),
        ({"discount": 1.5}, "discount must be between 0 and 1"),
        ({"trace_decay": -0.1}, "trace_decay must be between 0 and 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"network": 3}, "a network must be"),
        ({"distribution": "squashed"}, "squashed"),
        ({"activation": "tanhh"}, "Did you mean 'tanh'"),
        ({"recurrent": "grru"}, "Did you mean 'gru'"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"network": (lambda key: {}, lambda params, x: (x, x[0]))}, r"logits of shape \[2\].*expected \[3\]"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_cannot_work_is_refused_when_bound(cls, fields, says):
    with pytest.raises(ConfigError, match=says):
        bind(cls, **fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"clip_rho": 0.0}, "clip_rho must be above 0"), ({"clip_c": 2.0}, "clip_c = 2.0 is above clip_rho = 1.0")],
)
def test_bounds_for_which_v_trace_need_not_converge_are_refused(fields, says):
    with pytest.raises(ConfigError, match=says):
        bind(weft.IMPALA, **fields)


def test_a_field_that_is_not_known():
    with pytest.raises(UnknownName, match="Did you mean 'clip_rho'"):
        weft.IMPALA().with_fields(clip_roh=1.0)


@pytest.mark.parametrize("cls", BOTH)
def test_the_greedy_action_is_the_likeliest(cls):
    algorithm = bind(cls, spec=EnvSpec("toys:Batch", Box((2,)), Box((2,))))
    params = state_of(algorithm).params
    timestep = weft.Timestep(np.ones(2, np.float32), np.float32(0), np.bool_(True), np.bool_(False))
    mean = algorithm.net.apply(params, (), timestep.observation).logits[:2]
    np.testing.assert_allclose(algorithm.greedy(params, (), timestep).action, mean, rtol=1e-6)


@pytest.mark.parametrize("cls", [weft.PPO, *BOTH])
def test_the_help_of_inherited_fields_is_that_of_the_base(cls):
    shared = field_comments(ActorCritic)
    assert {"hidden", "activation", "distribution", "network"} <= shared.keys()
    assert {name: field_comments(cls)[name] for name in shared} == {**shared, "unroll": field_comments(cls)["unroll"]}


def test_an_actor_critic_must_choose_its_optimiser():
    with pytest.raises(ConfigError, match="ActorCritic must define rule"):
        ActorCritic().bind(bind(weft.A2C).spec).init(jax.random.key(0))
