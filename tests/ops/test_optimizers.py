"""Our Adam and our bound on the norm against optax's, step by step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from weft.ops.optimizers import LARGE_PARAMS, as_vector, bounded_optimizer


def gradients(sizes, steps=20):
    random = np.random.default_rng(0)
    for k in range(steps):
        yield [jnp.asarray(random.normal(size=size) * 10.0 ** (k % 5 - 2), jnp.float32) for size in sizes]


@pytest.mark.parametrize("sizes", [((3, 4), (4,)), ((300, 200), (200,))], ids=["one vector", "leaves"])
@pytest.mark.parametrize("norm", [None, 0.5])
def test_adam_behind_a_bound_is_optax_s(sizes, norm):
    params = [jnp.ones(size) for size in sizes]
    parts = [] if norm is None else [optax.clip_by_global_norm(norm)]
    theirs, ours = optax.chain(*parts, optax.adam(1e-2, eps=1e-5)), bounded_optimizer("adam", 1e-2, norm)
    here, there = ours.init(params), theirs.init(params)
    mine, yours = params, params
    step, other = jax.jit(ours.update), jax.jit(theirs.update)
    for gradient in gradients(sizes):
        changes, here = step(gradient, here, mine)
        expected, there = other(gradient, there, yours)
        mine, yours = optax.apply_updates(mine, changes), optax.apply_updates(yours, expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5), mine, yours)
    assert jax.tree.leaves(mine)[0].std() > 1e-3


def test_fresh_states_can_be_given_away():
    weights = {"kernel": jnp.ones((300, 200))}
    rule = bounded_optimizer("adam", 1e-3, None)
    step = jax.jit(lambda state: rule.update(weights, state, weights)[1], donate_argnums=0)
    jax.block_until_ready(step(rule.init(weights)))


def test_a_gradient_of_nothing_changes_nothing():
    rule = bounded_optimizer("adam", 1e-2, 0.5)
    params = [jnp.ones((3, 4))]
    changes, _ = rule.update([jnp.zeros((3, 4))], rule.init(params), params)
    np.testing.assert_array_equal(changes[0], 0)


def test_weights_decay_by_their_share_of_the_rate():
    rule = bounded_optimizer("adam", 1e-2, None, weight_decay=0.1)
    params = [jnp.full((3,), 2.0)]
    changes, _ = rule.update([jnp.zeros(3)], rule.init(params), params)
    np.testing.assert_allclose(changes[0], -1e-2 * 0.1 * 2.0, rtol=1e-6)


def test_a_small_network_is_one_vector_and_a_large_one_is_left_as_it_is():
    small, large = [jnp.ones((3, 4)), jnp.zeros(4)], [jnp.ones(LARGE_PARAMS), jnp.zeros(1)]
    vector, back = as_vector(small)
    assert vector.shape == (16,)
    assert [leaf.shape for leaf in back(2 * vector)] == [(3, 4), (4,)]
    same, back = as_vector(large)
    assert same is large
    assert back(large) is large


@pytest.mark.parametrize("mapped", [False, True])
def test_on_a_gpu_gradients_of_biases_are_found_apart_and_are_the_same(mapped, monkeypatch):
    params = {"kernel": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4), "bias": jnp.linspace(0.0, 1.0, 4)}
    rule = bounded_optimizer("adam", 0.1, 0.5)

    def change(x):
        gradient = jax.grad(lambda params: jnp.square(x @ params["kernel"] + params["bias"]).mean())(params)
        return rule.update(gradient, rule.init(params), params)[0]

    def of(x):
        return jax.vmap(change)(x) if mapped else change(x)

    x = jax.random.normal(jax.random.key(0), (2, 16, 3) if mapped else (16, 3))
    wanted = of(x)
    assert "optimization_barrier" not in str(jax.make_jaxpr(lambda x: of(x))(x))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert str(jax.make_jaxpr(lambda x: of(x))(x)).count("optimization_barrier") == 1
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), of(x), wanted)
