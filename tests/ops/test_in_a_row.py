"""Steps in a row: how many, and that a loop of them gives the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops import recursion
from weft.ops.in_a_row import in_a_row


@pytest.mark.parametrize(
    ("length", "most", "found"), [(32, 4, 4), (6, 4, 3), (5, 4, 1), (2, 4, 2), (0, 4, 1), (8, 1, 1)]
)
def test_the_largest_divisor_on_an_accelerator_and_one_on_a_cpu(length, most, found, monkeypatch):
    assert in_a_row(length, most) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert in_a_row(length, most) == found


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (32, 5), (33, 4)])
def test_a_sum_backwards_in_few_kernels_is_the_one_step_by_step(shape, monkeypatch):
    addend, factor = jax.random.normal(jax.random.key(0), shape), jax.random.uniform(jax.random.key(1), shape)
    factor = jnp.where(factor < 0.2, 0.0, factor)  # episodes end
    expected = np.zeros(shape, np.float64)
    later = np.zeros(shape[1])
    for t in reversed(range(shape[0])):
        later = np.asarray(addend[t], np.float64) + np.asarray(factor[t], np.float64) * later
        expected[t] = later
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        np.testing.assert_allclose(recursion.backward(addend, factor), expected, rtol=1e-5, atol=1e-6)
