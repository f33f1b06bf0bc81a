"""What was chosen: the same by a gather, as on a CPU, and by comparisons, as on a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops.choosing import FEW, of_chosen

SHAPES = {  # values, choices, axis
    "one axis": ((5, 3), (5,), -1),
    "time too": ((4, 5, 3), (4, 5), -1),
    "quantiles": ((5, 3, 7), (5, 1), 1),
    "one choice": ((5, 1), (5,), -1),
    "many": ((5, FEW + 1), (5,), -1),
}


@pytest.fixture(params=["cpu", "gpu"])
def backend(request, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_what_was_chosen(shape, backend):
    several, one, axis = SHAPES[shape]
    values = jax.random.normal(jax.random.key(0), several)
    choice = jax.random.randint(jax.random.key(1), one, 0, several[axis])
    expected = np.take_along_axis(np.asarray(values), np.expand_dims(np.asarray(choice), axis), axis).squeeze(axis)
    np.testing.assert_array_equal(of_chosen(values, choice, axis), expected)
    slopes = jax.grad(lambda v: jnp.sum(of_chosen(v, choice, axis) ** 2))(values)
    found = np.zeros(several, np.float32)
    np.put_along_axis(found, np.expand_dims(np.asarray(choice), axis), 2 * np.expand_dims(expected, axis), axis)
    np.testing.assert_array_equal(slopes, found)


def test_what_is_no_choice_is_no_number(backend):
    assert np.isnan(of_chosen(jnp.ones((3, 3)), jnp.array([3, 7, -1]))).all()


def test_what_was_not_chosen_may_be_anything(backend):
    values = jnp.array([[1.0, jnp.nan], [jnp.inf, 2.0]])
    np.testing.assert_array_equal(of_chosen(values, jnp.array([0, 1])), [1.0, 2.0])
    slopes = jax.grad(lambda v: of_chosen(v, jnp.array([0, 1])).sum())(values)
    np.testing.assert_array_equal(slopes, [[1.0, 0.0], [0.0, 1.0]])
