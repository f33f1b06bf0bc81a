from __future__ import annotations

import jax
import numpy as np
import pytest

from weft.ops.shuffling import LARGE_ROW_BYTES, over_minibatches, random_order


@pytest.mark.parametrize("size", [1, 2, 3, 8, 1000, 4096])
def test_every_number_once(size):
    order = np.asarray(random_order(jax.random.key(size), size))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_keys_decide():
    one, other = (np.asarray(random_order(jax.random.key(k), 256)) for k in (0, 1))
    assert (one != other).any()
    np.testing.assert_array_equal(one, random_order(jax.random.key(0), 256))


def test_every_number_is_equally_likely_in_every_slice():
    orders = jax.vmap(lambda k: random_order(k, 64))(jax.random.split(jax.random.key(0), 4000))
    in_first_quarter = np.zeros(64)
    np.add.at(in_first_quarter, np.asarray(orders)[:, :16].reshape(-1), 1)
    # Binomial(4000, 1/4): deviation 27.4; five of them for 64 numbers
    assert np.abs(in_first_quarter - 1000).max() < 5 * 27.4


def test_neighbours_part():
    """Two neighbours fall into the same half about half of the time."""
    orders = np.asarray(jax.vmap(lambda k: random_order(k, 1024))(jax.random.split(jax.random.key(1), 500)))
    place = np.argsort(orders, axis=1) < 512
    assert abs((place[:, 10] == place[:, 11]).mean() - 0.5) < 5 * 0.5 / np.sqrt(500)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_minibatches_are_the_shuffled_samples_whether_their_rows_are_small_or_large(count):
    samples = {
        "small": np.arange(8 * 3, dtype=np.float32).reshape(8, 3),
        "large": np.arange(8 * LARGE_ROW_BYTES, dtype=np.int32).reshape(8, LARGE_ROW_BYTES),
        "number": np.arange(8),
    }
    key = jax.random.key(5)

    def note(total, minibatch):
        return total + minibatch["small"].sum(), minibatch

    total, found = jax.jit(lambda samples: over_minibatches(note, 0.0, samples, key, count))(samples)
    order = np.asarray(random_order(key, 8))
    for name, whole in samples.items():
        np.testing.assert_array_equal(np.asarray(found[name]).reshape(whole.shape), whole[order])
        assert found[name].shape[:2] == (count, 8 // count)
    assert total == samples["small"].sum()
