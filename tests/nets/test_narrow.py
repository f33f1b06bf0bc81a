"""A narrow product is the product, forward and back, whatever the axes in front."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.nets.encoders import dense
from weft.nets.narrow import WIDEST, narrow_product


@pytest.mark.parametrize("columns", [2, 3, WIDEST])
@pytest.mark.parametrize("leading", [(), (5,), (3, 4)])
def test_values_and_gradients_are_those_of_a_plain_dense_layer(columns, leading):
    x = jax.random.normal(jax.random.key(0), (*leading, 16))
    ours, plain = dense(columns, 1.0), nn.Dense(columns)
    assert ours.dot_general is not None
    params = ours.init(jax.random.key(1), x)

    def loss(params, x, layer):
        return jnp.sin(layer.apply(params, x)).sum()

    one, other = (
        jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)(params, x, layer) for layer in (ours, plain)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), one, other)


def test_a_vector_and_a_wide_matrix_are_left_to_xla():
    assert narrow_product(1) is None
    assert narrow_product(WIDEST + 1) is None
