"""Every kind of action distribution: against distrax, against counted samples, and what each promises by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import ConfigError, UnknownName
from weft.core.specs import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, num_choices
from weft.ops import distribution_for

UNIT = Box((2, 3), "float32", -1.0, 1.0)
SPACES = {
    "categorical": Discrete(5),
    "multi_categorical": MultiDiscrete((3, 2, 4)),
    "multi_categorical_even": MultiDiscrete((3, 3)),
    "bernoulli": MultiBinary(4),
    "gaussian": Box((2, 3)),
    "squashed": UNIT,
}
DISCRETE = [name for name, space in SPACES.items() if num_choices(space)]
SIZES = {"categorical": 5, "multi_categorical": 9, "multi_categorical_even": 6, "bernoulli": 4}


# compiled once for each distribution and shape, by all the tests together
sample = jax.jit(lambda dist, params, key: dist.sample(params, key), static_argnums=0)
log_prob = jax.jit(lambda dist, params, action: dist.log_prob(params, action), static_argnums=0)
DRAWS = 20_000


def make(name):
    return distribution_for(SPACES[name], kind=name.removesuffix("_even"))


def random_params(dist, seed, lead=(6,)):
    """Within what a log-deviation may be, so that none is held."""
    return jnp.asarray(np.random.default_rng(seed).uniform(-1.9, 1.9, (*lead, dist.num_params)), jnp.float32)


def oracles(distrax, name, params):
    """The same distribution by distrax, as a list of independent ones, each with batch axes like the action's part."""
    match name:
        case "categorical":
            return [distrax.Categorical(logits=params)]
        case "multi_categorical" | "multi_categorical_even":
            ends = np.cumsum(SPACES[name].nvec)[:-1].tolist()
            return [distrax.Categorical(logits=part) for part in jnp.split(params, ends, -1)]
        case "bernoulli":
            return [distrax.Bernoulli(logits=params[..., i]) for i in range(4)]
        case "gaussian":
            return [distrax.Normal(params[..., i], jnp.exp(params[..., 6 + i])) for i in range(6)]
        case "squashed":
            normals = [distrax.Normal(params[..., i], jnp.exp(params[..., 6 + i])) for i in range(6)]
            return [distrax.Transformed(normal, distrax.Tanh()) for normal in normals]


def parts(name, action):
    """An action cut as ``oracles`` is."""
    if name == "categorical":
        return [action]
    flat = action.reshape((action.shape[0], -1))
    return [flat[:, i] for i in range(flat.shape[1])]


@pytest.mark.parametrize("name", SPACES)
def test_log_prob_matches_distrax(distrax, name):
    dist = make(name)
    params = random_params(dist, 0)
    action = sample(dist, params, jax.random.key(1))

    @jax.jit
    def oracle(params, action):
        pairs = zip(oracles(distrax, name, params), parts(name, action), strict=True)
        return sum(oracle.log_prob(part) for oracle, part in pairs)

    np.testing.assert_allclose(log_prob(dist, params, action), oracle(params, action), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in SPACES if n != "squashed"])
def test_entropy_matches_distrax(distrax, name):
    dist = make(name)
    params = random_params(dist, 2)

    @jax.jit
    def both(params):
        return dist.entropy(params), sum(oracle.entropy() for oracle in oracles(distrax, name, params))

    np.testing.assert_allclose(*both(params), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SPACES)
def test_shapes_and_dtypes_are_those_of_the_space(name):
    dist, space = make(name), SPACES[name]

    def everything(params):
        actions = dist.sample(params, jax.random.key(0)), dist.mode(params)
        return actions, (dist.log_prob(params, actions[0]), dist.entropy(params))

    for lead in [(), (3,), (2, 3)]:
        for dtype in (jnp.float32, jnp.bfloat16):
            params = jax.ShapeDtypeStruct((*lead, dist.num_params), dtype)
            actions, numbers = jax.eval_shape(everything, params)
            assert {(a.shape, a.dtype.name) for a in actions} == {(lead + space.shape, space.dtype)}
            assert {(n.shape, n.dtype.name) for n in numbers} == {(lead, "float32")}


@pytest.mark.parametrize("name", SPACES)
def test_one_environment_at_a_time_agrees_with_a_batch(name):
    dist = make(name)
    params, keys = random_params(dist, 5), jax.random.split(jax.random.key(0), 6)

    @jax.jit
    def both(params, keys):
        actions = jax.vmap(dist.sample)(params, keys)
        return actions, jax.vmap(dist.log_prob)(params, actions), dist.sample(params[4], keys[4])

    actions, one_by_one, fifth = both(params, keys)
    np.testing.assert_allclose(actions[4], fifth, rtol=1e-5)
    np.testing.assert_allclose(one_by_one, log_prob(dist, params, actions), rtol=1e-5)
    assert len(np.unique(np.asarray(sample(dist, params[:1].repeat(6, 0), keys[0])).reshape(6, -1), axis=0)) > 1


def choice_counts(name, actions):
    """How often each choice of each dimension came, laid out as a mask is: ``[choices]``."""
    sizes = {"categorical": [5], "bernoulli": [2] * 4}.get(name) or list(SPACES[name].nvec)
    columns = np.asarray(actions).reshape(len(actions), -1)
    return np.concatenate([np.bincount(columns[:, i], minlength=n) for i, n in enumerate(sizes)])


@pytest.mark.parametrize("name", DISCRETE)
def test_samples_come_as_often_as_they_should(distrax, name):
    dist, draws = make(name), DRAWS
    params = random_params(dist, 6, ())
    actions = sample(dist, jnp.broadcast_to(params, (draws, dist.num_params)), jax.random.key(0))
    if name == "bernoulli":
        one = jax.nn.sigmoid(params)
        expected = np.stack([1 - one, one], -1).ravel()
    else:
        expected = np.concatenate([oracle.probs for oracle in oracles(distrax, name, params)])
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(choice_counts(name, actions) / draws - expected) < 5 * deviation).all()


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_samples_have_the_right_moments(name):
    dist, draws = make(name), DRAWS
    params = random_params(dist, 7, ())
    actions = sample(dist, jnp.broadcast_to(params, (draws, dist.num_params)), jax.random.key(0))
    before = np.asarray(actions if name == "gaussian" else jnp.arctanh(actions)).reshape(draws, 6)
    mean, std = np.asarray(params[:6]), np.exp(params[6:])
    if name == "squashed":  # the median survives squashing, and the bounds
        assert np.abs(actions).max() < 1.0
        np.testing.assert_allclose(np.mean(before < mean, 0), 0.5, atol=5 * 0.5 / np.sqrt(draws))
    else:
        assert (np.abs(before.mean(0) - mean) < 5 * std / np.sqrt(draws)).all()
        np.testing.assert_allclose(before.std(0), std, rtol=5 / np.sqrt(2 * draws))


@pytest.mark.parametrize("name", [*DISCRETE, "gaussian"])
def test_mode_is_the_most_likely(name):
    dist = make(name)
    params = random_params(dist, 8)
    best = log_prob(dist, params, dist.mode(params))
    for seed in range(20):
        assert (best >= log_prob(dist, params, sample(dist, params, jax.random.key(seed))) - 1e-6).all()


def test_log_probs_of_all_actions_sum_to_one():
    dist = make("multi_categorical")
    params = random_params(dist, 9, ())
    grid = np.stack(np.meshgrid(*map(np.arange, (3, 2, 4)), indexing="ij"), -1).reshape(-1, 3)
    log_probs = dist.log_prob(jnp.broadcast_to(params, (len(grid), 9)), jnp.asarray(grid))
    np.testing.assert_allclose(np.exp(log_probs).sum(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(-(np.exp(log_probs) * log_probs).sum(), dist.entropy(params), rtol=1e-5)


# Masks


def partial_mask(name):
    """One choice disallowed in each dimension of more than one."""
    return {
        "categorical": [1, 0, 1, 0, 1],
        "multi_categorical": [1, 1, 0, 0, 1, 1, 0, 0, 1],
        "multi_categorical_even": [0, 1, 1, 1, 0, 1],
        "bernoulli": [1, 1, 1, 0, 0, 1, 1, 1],
    }[name]


@pytest.mark.parametrize("name", DISCRETE)
def test_a_mask_forbids(name):
    dist = make(name)
    allowed = np.asarray(partial_mask(name), bool)
    params = dist.mask(random_params(dist, 10, (DRAWS,)), jnp.broadcast_to(allowed, (DRAWS, len(allowed))))
    counts = choice_counts(name, sample(dist, params, jax.random.key(0)))
    assert (counts[~allowed] == 0).all()
    assert (counts[allowed] > 0).all()
    assert (choice_counts(name, dist.mode(params))[~allowed] == 0).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_masked_numbers_are_finite_with_their_gradients(name):
    dist = make(name)
    allowed = jnp.broadcast_to(jnp.asarray(partial_mask(name), bool), (6, len(partial_mask(name))))
    raw = random_params(dist, 11)
    action = jnp.zeros((6, *SPACES[name].shape), jnp.int32)  # disallowed in one kind at least

    @jax.jit
    def numbers(raw):
        params = dist.mask(raw, allowed)
        return jnp.stack([dist.log_prob(params, action), dist.entropy(params)])

    assert np.isfinite(numbers(raw)).all()
    assert np.isfinite(jax.jit(jax.jacobian(numbers))(raw)).all()


def test_masking_is_conditioning():
    """Masked probabilities are the old ones over their sum, and the entropy is that of what is left."""
    dist = make("categorical")
    params = random_params(dist, 13, ())
    allowed = np.asarray(partial_mask("categorical"), bool)
    left = np.where(allowed, jax.nn.softmax(params), 0.0)
    left /= left.sum()
    masked = dist.mask(params, jnp.asarray(allowed))
    np.testing.assert_allclose(jax.nn.softmax(masked), left, rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(masked), -np.sum(left[allowed] * np.log(left[allowed])), rtol=1e-5)


def test_a_bit_mask_forces_bits():
    dist = make("bernoulli")
    params = dist.mask(jnp.zeros(4), jnp.asarray([1, 0, 0, 1, 1, 1, 0, 0], bool))
    np.testing.assert_array_equal(jax.nn.sigmoid(params), [0.0, 1.0, 0.5, 0.5])
    np.testing.assert_allclose(dist.entropy(params), 2 * np.log(2.0), rtol=1e-6)


@pytest.mark.parametrize("name", DISCRETE)
def test_where_nothing_is_allowed_everything_is(name):
    dist = make(name)
    params = random_params(dist, 14)
    nothing = jnp.zeros((6, num_choices(SPACES[name])), bool)
    np.testing.assert_array_equal(dist.mask(params, nothing), params)


def test_an_empty_dimension_leaves_the_others_masked():
    dist = make("multi_categorical")
    params = random_params(dist, 15, ())
    mask = jnp.asarray([0, 0, 0, 0, 1, 1, 0, 0, 0], bool)
    masked = dist.mask(params, mask)
    np.testing.assert_array_equal(masked[:3], params[:3])
    np.testing.assert_array_equal(dist.mode(masked)[1:], [1, 0])


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_continuous_actions_have_no_mask(name):
    dist = make(name)
    with pytest.raises(ConfigError, match="no choices to mask"):
        dist.mask(random_params(dist, 0), jnp.ones((6, 2), bool))


# Continuous kinds


def test_squashed_entropy_matches_integration():
    """Against fine numerical integration, over narrow and wide, centred and saturated Gaussians."""
    dist = distribution_for(Box((), "float32", -1.0, 1.0), kind="squashed")
    grid = np.linspace(-12, 12, 40_001)
    weights = np.exp(-0.5 * grid**2)
    weights /= weights.sum()
    params = np.asarray([(m, s) for m in (-6.0, -0.7, 0.0, 2.0) for s in (-4.0, -1.0, 0.0, 1.0, 2.0)])
    expected = []
    for mean, log_std in params:
        u = mean + np.exp(log_std) * grid
        log_slope = 2 * np.log(2) - 2 * np.logaddexp(u, -u)
        expected.append(log_std + 0.5 * np.log(2 * np.pi * np.e) + weights @ log_slope)
    np.testing.assert_allclose(jax.jit(dist.entropy)(jnp.asarray(params, jnp.float32)), expected, atol=1e-4)


def test_squashed_density_integrates_to_one():
    dist = distribution_for(Box((), "float32", -1.0, 1.0), kind="squashed")
    edges = np.tanh(np.linspace(-7, 7, 20_001))
    middle = jnp.asarray((edges[1:] + edges[:-1]) / 2, jnp.float32)
    density = np.exp(dist.log_prob(jnp.broadcast_to(jnp.asarray([0.3, -0.2]), (20_000, 2)), middle))
    np.testing.assert_allclose(density @ np.diff(edges), 1.0, rtol=1e-3)


@pytest.mark.parametrize("action", [-1.0, 1.0, 0.9999999])
def test_squashed_density_is_finite_at_the_bounds(action):
    dist = distribution_for(Box((), "float32", -1.0, 1.0), kind="squashed")
    value, gradient = jax.jit(jax.value_and_grad(dist.log_prob))(jnp.asarray([0.0, 0.0]), jnp.float32(action))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_extreme_deviations_are_held(name):
    dist = make(name)
    for extreme, held in ((-1e3, -10.0), (1e3, 2.0)):
        params = jnp.concatenate([jnp.zeros(6), jnp.full(6, extreme)])
        same = jnp.concatenate([jnp.zeros(6), jnp.full(6, held)])
        np.testing.assert_array_equal(dist.entropy(params), dist.entropy(same))
        action = dist.sample(params, jax.random.key(0))
        assert np.isfinite(dist.log_prob(params, action))


# Noise by the key alone


@pytest.mark.parametrize("name", SPACES)
def test_noise_is_drawn_by_the_key_alone(name):
    """One draw, and no equation that calls another program takes both something of the key and something of params."""
    dist = make(name)
    params = jnp.zeros(dist.num_params)
    jaxpr = jax.make_jaxpr(dist.sample)(params, jax.random.key(0)).jaxpr
    by_params, by_key, drawn = {jaxpr.invars[0]}, {jaxpr.invars[1]}, 0
    for equation in jaxpr.eqns:
        inputs = [v for v in equation.invars if not hasattr(v, "val")]
        of_params, of_key = by_params & set(inputs), by_key & set(inputs)
        if of_key and jax.dtypes.issubdtype(next(iter(of_key)).aval.dtype, jax.dtypes.prng_key):
            drawn += 1
            assert not of_params
        if of_params:
            by_params |= set(equation.outvars)
        if of_key and not of_params:
            by_key |= set(equation.outvars)
    assert drawn == 1


# Choosing


def test_auto_goes_by_the_space():
    kinds = [
        type(distribution_for(SPACES[n])).__name__
        for n in ("categorical", "multi_categorical", "bernoulli", "gaussian")
    ]
    assert kinds == ["Categorical", "MultiCategorical", "Bernoulli", "Gaussian"]
    assert type(distribution_for(UNIT)).__name__ == "Gaussian"
    assert [make(n).num_params for n in SIZES] == list(SIZES.values())
    assert distribution_for(Box((2, 3))).num_params == 12


def test_a_bounded_environment_may_be_squashed():
    spec = EnvSpec("x", Box((3,)), Box((2,), "float32", np.asarray([-2.0, 0.0]), np.asarray([2.0, 5.0])))
    assert distribution_for(spec.action, kind="squashed").num_params == 4
    with pytest.raises(ConfigError, match=r"within \[-1, 1\]"):
        distribution_for(spec.native_action, kind="squashed")
    with pytest.raises(ConfigError, match="or use 'auto', a gaussian, where there are no bounds"):
        distribution_for(Box((2,)), kind="squashed")


def test_names_that_do_not_fit():
    with pytest.raises(UnknownName, match="Did you mean 'gaussian'"):
        distribution_for(Box((2,)), kind="gausian")
    with pytest.raises(
        ConfigError, match=r"'gaussian' is for Box actions.*Discrete\(3\): use auto, which is categorical"
    ):
        distribution_for(Discrete(3), kind="gaussian")
    with pytest.raises(ConfigError, match="no distribution"):
        distribution_for({"a": Discrete(3)})


@pytest.mark.parametrize("name", SPACES)
def test_equal_spaces_give_equal_distributions(name):
    """Distributions may be static arguments of compiled functions: equal ones must not compile twice."""
    assert make(name) == make(name)
    assert hash(make(name)) == hash(make(name))
