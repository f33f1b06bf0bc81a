import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops import masked

SHAPES = [(5, 7), (5, 7, 3)]


@pytest.fixture(params=SHAPES, ids=str)
def x(request):
    return np.random.default_rng(0).normal(3.0, 2.0, request.param).astype(np.float32)


@pytest.fixture
def valid():
    return np.random.default_rng(1).random((5, 7)) < 0.6


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_reductions_match_numpy_on_the_valid_rows(x, valid, name):
    spoiled = np.where(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x, np.nan)
    function, oracle = getattr(masked, name), getattr(np, name)
    np.testing.assert_allclose(function(jnp.asarray(spoiled), jnp.asarray(valid)), oracle(x[valid]), rtol=1e-5)
    np.testing.assert_allclose(function(jnp.asarray(x)), oracle(x), rtol=1e-5)
    assert function(jnp.asarray(spoiled), jnp.zeros_like(valid)) == 0.0


def test_normalise_matches_numpy_on_the_valid_rows(x, valid):
    where = np.broadcast_to(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x.shape)
    result = np.asarray(masked.normalise(jnp.asarray(np.where(where, x, np.nan)), jnp.asarray(valid)))
    np.testing.assert_allclose(result[valid], (x[valid] - x[valid].mean()) / x[valid].std(), rtol=1e-4, atol=1e-5)
    assert (result[~valid] == 0.0).all()
    everything = masked.normalise(jnp.asarray(x))
    np.testing.assert_allclose(everything, (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-5)
    assert (masked.normalise(jnp.asarray(x), jnp.zeros_like(valid)) == 0.0).all()


def test_normalise_of_a_constant_is_zero():
    np.testing.assert_array_equal(masked.normalise(jnp.full((4, 2), 3.0)), np.zeros((4, 2)))


def test_no_mask_compiles_to_a_plain_mean():
    x = jnp.ones((3, 4))
    ours, plain = jax.make_jaxpr(masked.mean)(x), jax.make_jaxpr(jnp.mean)(x)
    assert [e.primitive.name for e in ours.eqns] == [e.primitive.name for e in plain.eqns]


def test_gradient_reaches_only_valid_elements(valid):
    x = jnp.ones((5, 7))
    gradient = jax.grad(lambda x: masked.mean(x * x, jnp.asarray(valid)))(x)
    np.testing.assert_allclose(gradient, np.where(valid, 2.0 / valid.sum(), 0.0), rtol=1e-6)
