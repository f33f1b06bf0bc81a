"""C51's projection against the loop of its paper, and what it keeps."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.ops import atoms


def projected(probability, returns, support):
    """One distribution at a time, one atom at a time: to the neighbours below and above."""
    low, high, count = support[0], support[-1], len(support)
    step = (high - low) / (count - 1)
    found = np.zeros((len(probability), count))
    for row, (each, where) in enumerate(zip(probability, returns, strict=True)):
        for p, z in zip(each, where, strict=True):
            place = (min(max(z, low), high) - low) / step
            below, above = math.floor(place), math.ceil(place)
            if below == above:
                found[row, below] += p
            else:
                found[row, below] += p * (above - place)
                found[row, above] += p * (place - below)
    return found


@pytest.mark.parametrize(("low", "high", "count"), [(-10.0, 10.0, 51), (0.0, 1.0, 2), (-3.0, 5.0, 9)])
def test_the_projection_is_that_of_the_paper(low, high, count):
    drawn = np.random.default_rng(0)
    support = np.linspace(low, high, count)
    probability = drawn.dirichlet(np.ones(count), 64)
    reward, discount = drawn.normal(0, high - low, (64, 1)), drawn.choice([0.0, 0.9, 1.0], (64, 1))
    returns = reward + discount * support
    returns[0] = support  # exactly on the atoms
    found = atoms.project(probability.astype(np.float32), returns.astype(np.float32), support.astype(np.float32))
    np.testing.assert_allclose(found, projected(probability, returns, support), atol=2e-5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(found[0], probability[0], atol=1e-5)
    inside = (returns >= low).all(-1) & (returns <= high).all(-1)
    means = np.asarray(found) @ support
    np.testing.assert_allclose(means[inside], (probability * returns).sum(-1)[inside], atol=2e-4)


def test_regression_towards_samples_finds_their_distribution():
    support = jnp.linspace(0.0, 1.0, 5)
    target = atoms.project(jnp.full((1, 4), 0.25), jnp.array([[0.0, 0.25, 0.25, 2.0]]), support)
    slope = jax.jit(jax.grad(lambda logits: atoms.cross_entropy(logits, target).sum()))
    logits = jnp.zeros((1, 5))
    for _ in range(500):
        logits -= slope(logits)
    np.testing.assert_allclose(jax.nn.softmax(logits)[0], [0.25, 0.5, 0, 0, 0.25], atol=0.01)
