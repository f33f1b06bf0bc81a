"""PPO's own arithmetic, on batches made by hand; the maths below it is tested in tests/ops."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from batches import acted_batch
from batches import bind as bind_for_batches
from toys import SMALL, farthest, same

import weft
from weft.algorithms.ppo import linear
from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec, MultiDiscrete, Spec
from weft.core.types import Unroll
from weft.ops import vtrace
from weft.ops.shuffling import over_minibatches

LENGTH, ENVS = 4, 2
SPEC = EnvSpec("toys:Counter", Box((2,)), Discrete(3))


def bind(learn_steps=10, spec=SPEC, envs=ENVS, **fields):
    return weft.PPO(**{**SMALL, **fields}).bind(Spec(spec, envs, learn_steps))


def make_batch(algorithm, params, seed=0, moved=0.0):
    """A batch as ``algorithm`` would have made it; ``moved`` shifts the old log-probabilities and values."""
    random = np.random.default_rng(seed)
    shape = (LENGTH, ENVS)
    observation = random.normal(2.0, 3.0, (*shape, 2)).astype(np.float32)
    action = random.integers(0, 3, shape).astype(np.int32)

    def look(x, action):
        output = algorithm.net.apply(params.network, (), x)
        return algorithm.actions.log_prob(output.logits, action), output.value

    log_prob, value = jax.jit(jax.vmap(jax.vmap(look)))(observation, action)
    shift = moved * random.normal(size=shape).astype(np.float32)
    ends = random.random(shape) < 0.3
    return Unroll(
        observation=observation,
        first=np.zeros(shape, np.bool_),
        action=action,
        extras={"log_prob": np.asarray(log_prob) + shift, "value": np.asarray(value) + shift},
        reward=random.normal(size=shape).astype(np.float32),
        terminated=ends,
        truncated=np.zeros(shape, np.bool_),
        bootstrap=random.normal(size=shape).astype(np.float32),
        carry=(),
        last_observation=observation[-1],
        last_first=ends[-1],
    )


@pytest.fixture(scope="module")
def plain():
    """(a bound PPO with four minibatches in two epochs, its state, a batch)."""
    algorithm = bind(epochs=2, minibatches=4)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    return algorithm, state, make_batch(algorithm, state.params)


def minibatches(samples, key, count):
    """The minibatches of one epoch, stacked."""
    return over_minibatches(lambda state, minibatch: (state, minibatch), (), samples, key, count)[1]


def by_hand(algorithm, state, batch, updates):
    """The network after the first ``updates`` minibatches, one after the other."""
    _, samples = jax.jit(algorithm._prepare)(state.params, batch)
    keys = jax.random.split(jax.random.fold_in(state.key, state.step), algorithm.epochs)
    network, optimizer = state.params.network, state.optimizer
    gradient = jax.jit(jax.grad(algorithm.loss, has_aux=True))
    update = jax.jit(algorithm.rule(0).update)
    per_epoch = algorithm.minibatches
    for n in range(updates):
        cut = minibatches(samples, keys[n // per_epoch], per_epoch)
        minibatch = jax.tree.map(lambda x, i=n % per_epoch: x[i], cut)
        gradients, _ = gradient(network, minibatch, algorithm.entropy_cost)
        changes, optimizer = update(gradients, optimizer, network)
        network = optax.apply_updates(network, changes)
    return network


def test_learn_goes_over_every_minibatch_of_every_epoch(plain):
    algorithm, state, batch = plain
    new, metrics = jax.jit(algorithm.learn)(state, batch)
    assert farthest(new.params.network, by_hand(algorithm, state, batch, 8)) < 1e-5  # fused otherwise, last bits
    assert farthest(new.params.network, state.params.network) > 1e-2
    assert int(new.step) == 1
    assert set(metrics) == {"loss", "policy_loss", "value_loss", "entropy", "approx_kl"}


def test_the_kl_stop_leaves_out_every_update_after_the_policy_has_moved(plain):
    _, state, batch = plain
    stopping = bind(epochs=2, minibatches=4, target_kl=1e-7)
    new, _ = jax.jit(stopping.learn)(state, batch)
    once = by_hand(stopping, state, batch, 1)
    assert farthest(new.params.network, once) < 1e-6
    assert farthest(once, by_hand(stopping, state, batch, 2)) > 1e-4


def test_a_kl_stop_that_is_never_reached_changes_nothing(plain):
    algorithm, state, batch = plain
    lenient = bind(epochs=2, minibatches=4, target_kl=1e9)
    assert (
        farthest(jax.jit(lenient.learn)(state, batch)[0].params, jax.jit(algorithm.learn)(state, batch)[0].params)
        < 1e-6
    )


def test_a_shuffle_is_a_permutation_that_keeps_rows_together(plain):
    algorithm, state, batch = plain
    _, samples = jax.jit(algorithm._prepare)(state.params, batch)
    cut = minibatches(samples, jax.random.key(3), 4)
    steps = cut.steps
    assert steps.observation.shape == (4, 2, 2)
    rows = sorted(map(tuple, np.column_stack([steps.observation.reshape(8, 2), steps.target.reshape(8, 1)]).tolist()))
    whole = np.column_stack([samples.steps.observation, samples.steps.target])
    assert rows == sorted(map(tuple, whole.tolist()))
    assert not np.array_equal(steps.target.reshape(-1), samples.steps.target)


def test_rewards_are_measured_by_every_return_that_was_reached(plain):
    """A reward that ends an episode counts too, whether the next record only resets or the unroll ends there."""
    _, _, batch = plain
    algorithm = bind(normalise_rewards=True, discount=0.5)
    params = jax.jit(algorithm.init)(jax.random.key(0)).params
    # Before this unroll both had got 4. The first gets 2 and ends, is reset, gets nothing; the second ends with 6.
    reward = np.array([[2, 0], [0, 0], [0, 0], [0, 6]], np.float32)
    terminated = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.bool_)
    valid = np.array([[1, 1], [0, 1], [1, 1], [1, 1]], np.bool_)
    shown = np.array([[4, 4], [0.5 * 4 + 2, 2], [0, 1], [0, 0.5]], np.float32)  # what act saw of it, a step later
    first = np.array([[0, 0], [1, 0], [1, 0], [0, 0]], np.bool_)
    told = {"reward": reward, "terminated": terminated, "valid": valid, "first": first}
    batch = batch._replace(**told, extras={**batch.extras, "discounted_return": shown})
    (now, _) = jax.jit(algorithm._prepare)(params, batch)
    reached = np.array([4, 0, 0, 2, 1, 0.5, 0.25 + 6])
    assert float(now.returns.seen) == 7
    np.testing.assert_allclose(now.returns.mean, reached.mean(), rtol=1e-6)
    np.testing.assert_allclose(now.returns.var, reached.var(), rtol=1e-6)


@pytest.mark.parametrize("target_kl", [None, 1e-9])
def test_schedules_begin_where_they_should_and_reach_their_ends(target_kl):
    """Also where the KL stop leaves out all updates of a batch but the first."""
    fields = {"learning_rate_end": 0.0, "entropy_cost": 0.01, "entropy_cost_end": 0.05, "target_kl": target_kl}
    algorithm = bind(learn_steps=2, epochs=1 if target_kl is None else 4, **fields)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    learn = jax.jit(algorithm.learn)
    costs, moves = [], []
    for _ in range(3):
        new, m = learn(state, make_batch(algorithm, state.params))
        costs.append(float((m["policy_loss"] + 0.5 * m["value_loss"] - m["loss"]) / m["entropy"]))
        moves.append(farthest(new.params.network, state.params.network))
        state = new
    np.testing.assert_allclose(costs, [0.01, 0.03, 0.05], atol=1e-5)
    assert moves[0] > 0.009  # Adam's first step is the learning rate
    assert 0.0 < moves[1] < moves[0]
    assert moves[2] == 0.0
    assert [float(linear(0.3, None, 5)(n)) for n in (0, 5)] == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"clip": 0.01}, "policy_loss"),
        ({"dual_clip": 1.1}, "policy_loss"),
        ({"normalise_advantages": True}, "policy_loss"),
        ({"value_clip": 0.05}, "value_loss"),
        ({"value_cost": 2.0}, "loss"),
        ({"entropy_cost": 1.0}, "loss"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else x,
)
def test_a_field_changes_its_part_of_the_loss_and_no_other(plain, fields, changes):
    """On a batch whose policy has moved: the ratio is e^±1 and more, the values are off by as much."""
    algorithm, state, _ = plain
    batch = make_batch(algorithm, state.params, moved=2.0)
    before, after = bind(), bind(**fields)
    metrics = [_metrics(a, state, batch) for a in (before, after)]
    different = {name for name in metrics[0] if abs(metrics[0][name] - metrics[1][name]) > 1e-4}
    assert different == {changes, "loss"}


def _metrics(algorithm, state, batch):
    def losses(state, batch):
        _, samples = algorithm._prepare(state.params, batch)
        return algorithm.loss(state.params.network, samples, algorithm.entropy_cost)[1]

    return {name: float(value) for name, value in jax.jit(losses)(state, batch).items()}


@pytest.mark.parametrize(
    ("cut", "targets"), [(True, (20.625, 19.25, 14.5, 11.5)), (False, (20.25, 18.5, 13.0, 11.5))], ids=["cut", "ended"]
)
def test_targets_by_hand(cut, targets):
    """With discount 0.5 and lambda 1, backwards from the last step, whose follower is worth 1:

    11 + 0.5 * 1; then 13 + 0.5 * 3 where cut and 13 where terminated; then 12 + 0.5 * (that), and 11 + 0.5 * (that).
    """
    algorithm = bind(discount=0.5, trace_decay=1.0, envs=1)
    at = np.array([[False], [False], [True], [False]])
    batch = Unroll(
        observation=np.zeros((4, 1, 2), np.float32),
        first=np.zeros((4, 1), np.bool_),
        action=np.zeros((4, 1), np.int32),
        extras={"log_prob": np.zeros((4, 1), np.float32), "value": np.array([[0], [1], [2], [0]], np.float32)},
        reward=np.array([[11], [12], [13], [11]], np.float32),
        terminated=at & (not cut),
        truncated=at & cut,
        bootstrap=np.array([[0], [0], [3], [1]], np.float32),
        carry=(),
        last_observation=np.zeros((1, 2), np.float32),
        last_first=np.zeros(1, np.bool_),
    )
    params = jax.eval_shape(algorithm.init, jax.random.key(0)).params
    _, samples = algorithm._prepare(params, batch)
    assert samples.steps.target.tolist() == list(targets)
    assert samples.steps.advantage.tolist() == [t - v for t, v in zip(targets, (0, 1, 2, 0), strict=True)]


V_TRACE = {"epochs": 1, "minibatches": 1, "normalise_advantages": False, "vtrace": True, "trace_decay": 0.95}


@pytest.mark.parametrize("recurrent", ["", "gru"])
def test_without_lag_v_trace_is_gae(recurrent):
    corrected = bind_for_batches(weft.PPO, **V_TRACE, recurrent=recurrent, value_clip=0.2)
    plain = corrected.with_fields(vtrace=False).bind(corrected.spec)
    params = jax.jit(corrected.init)(jax.random.key(0)).params
    batch = acted_batch(corrected, params)
    assert batch.first.any()
    assert batch.truncated.any()
    (_, found), (_, expected) = (jax.jit(a._prepare)(params, batch) for a in (corrected, plain))
    assert farthest(found, expected) < 1e-5


def test_a_stale_batch_is_corrected_by_v_trace():
    """Values and ratios are those of the params that learn; the step's own ratio is left to the surrogate."""
    algorithm = bind_for_batches(weft.PPO, **V_TRACE)
    older, params = (jax.jit(algorithm.init)(jax.random.key(seed)).params for seed in (0, 1))
    params = jax.tree.map(lambda x: 1.5 * x, params)
    batch = acted_batch(algorithm, older)
    _, found = jax.jit(algorithm._prepare)(params, batch)
    network = jax.vmap(lambda x: algorithm.net.apply(params.network, (), x)[:2])
    logits, value = jax.vmap(network)(batch.observation)
    log_ratio = algorithm.actions.log_prob(logits, batch.action) - batch.extras["log_prob"]
    bootstrap = batch.bootstrap.copy()
    bootstrap[-1] = np.where(batch.truncated[-1], bootstrap[-1], network(batch.last_observation)[1])
    arguments = (batch.reward, value, bootstrap, batch.terminated, batch.truncated, log_ratio, algorithm.discount, 0.95)
    target, advantage = vtrace(*arguments)
    np.testing.assert_allclose(found.steps.target, target.reshape(-1), atol=1e-5)
    weight = jnp.minimum(1.0, jnp.exp(log_ratio))
    np.testing.assert_allclose(found.steps.advantage, (advantage / weight).reshape(-1), atol=1e-5)
    assert farthest(weight, jnp.ones_like(weight)) > 1e-3
    _, uncorrected = jax.jit(algorithm.with_fields(vtrace=False).bind(algorithm.spec)._prepare)(params, batch)
    assert farthest(found.steps.target, uncorrected.steps.target) > 1e-2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"unroll": 0}, "unroll must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
        ({"minibatches": 3}, r"8 steps .* into 3 minibatches"),
        ({"minibatches": 4, "recurrent": "gru"}, r"2 environments into 4 minibatches"),
        ({"discount": 1.5}, "discount must be between 0 and 1"),
        ({"trace_decay": -0.1}, "trace_decay must be between 0 and 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"network": 3}, "a network must be"),
        ({"distribution": "squashed"}, "squashed"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_cannot_work_is_refused_when_bound(fields, says):
    with pytest.raises(ConfigError, match=says):
        bind(**fields)


def test_names_that_are_not_known():
    with pytest.raises(UnknownName, match="Did you mean 'tanh'"):
        bind(activation="tanhh")
    with pytest.raises(UnknownName, match="Did you mean 'gru'"):
        bind(recurrent="grru")
    with pytest.raises(UnknownName, match="Did you mean 'learning_rate'"):
        weft.PPO().with_fields(learning_rat=1.0)


def test_a_network_that_does_not_fit_the_actions_is_refused():
    network = (lambda key: {"w": jnp.zeros((2, 5))}, lambda params, x: (x @ params["w"], x[0]))
    with pytest.raises(ConfigError, match=r"logits of shape \[5\].*expected \[3\]"):
        bind(network=network)
    fits = (lambda key: {"w": jnp.zeros((2, 5))}, lambda params, x: (x @ params["w"], x[0]))
    bind(network=fits, spec=EnvSpec("toys:Counter", Box((2,)), MultiDiscrete((2, 3))))


def test_an_unbound_algorithm_says_so():
    with pytest.raises(ConfigError, match="not bound"):
        weft.PPO().init(jax.random.key(0))


def test_a_copy_keeps_the_hyper_parameters_and_config_is_plain():
    algorithm = weft.PPO(hidden=(8, 9), network=(len, len)).with_fields(clip=0.3)
    config = algorithm.config()
    assert config["hidden"] == [8, 9]
    assert config["clip"] == 0.3
    assert "network" not in config
    assert same(bind().config()["learning_rate"], 0.01)
