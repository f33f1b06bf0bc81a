"""The product of dense layers: the gradients of plain layers, by products that XLA has fast kernels for on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.specs import Box
from weft.nets import actor_critic, apply_batch
from weft.nets.product import product

DIMENSIONS = (((1,), (0,)), ((), ()))


def squares(multiply, x, weights):
    return (multiply(x, weights, DIMENSIONS) ** 2).sum()


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(96, 64, 64), (96, 64, 2), (96, 4, 64), (1, 3, 5)])
def test_gradients_are_those_of_a_plain_product(rows, inputs, outputs):
    keys = jax.random.split(jax.random.key(0))
    x, weights = jax.random.normal(keys[0], (rows, inputs)), jax.random.normal(keys[1], (inputs, outputs))
    found, expected = (
        jax.jit(jax.value_and_grad(squares, (1, 2)), static_argnums=0)(multiply, x, weights)
        for multiply in (product, jax.lax.dot_general)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def test_no_factor_lies_column_by_column():
    def compiled(multiply):
        x, weights = jnp.ones((512, 64)), jnp.ones((64, 64))
        gradient = jax.jit(jax.grad(squares, (1, 2)), static_argnums=0)
        return gradient.lower(multiply, x, weights).compile().as_text()

    assert "lhs_contracting_dims={0}" in compiled(jax.lax.dot_general)
    assert "lhs_contracting_dims={0}" not in compiled(product)


def test_a_network_has_it_for_batches():
    net = actor_critic(Box((4,)), 2)
    params, x = net.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (32, 4))

    def value(params, network):
        output = apply_batch(network, params, x)
        return (output.logits**2).sum() + (output.value**2).sum()

    found, expected = (jax.grad(value)(params, network) for network in (net, net._replace(batch=None)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
