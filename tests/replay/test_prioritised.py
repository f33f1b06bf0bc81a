"""Prioritised replay against what it should draw: the sum tree against plain sums, draws against probabilities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import World

from weft.core.types import Priorities
from weft.replay import PrioritisedReplay, UniformReplay, sum_tree


@pytest.mark.parametrize("size", [1, 2, 5, 64, 100])
def test_every_node_is_the_sum_of_its_children_after_any_updates(size):
    draw = np.random.default_rng(size)
    tree, kept = sum_tree.empty_tree(size), np.zeros(size, np.float32)
    for _ in range(5):
        index = draw.permutation(size)[: max(1, size // 2)]
        kept[index] = draw.random(len(index))
        tree = sum_tree.update(tree, jnp.array(index), jnp.array(kept[index]))
    np.testing.assert_array_equal(sum_tree.leaves(tree)[:size], kept)
    half = len(tree) // 2
    np.testing.assert_array_equal(tree[1:half], tree[2 : 2 * half : 2] + tree[3 : 2 * half : 2])
    assert sum_tree.total(tree) == pytest.approx(kept.sum(), rel=1e-5)


def test_a_leaf_is_found_by_the_running_sum_and_one_of_no_priority_never():
    priority = np.array([0, 1, 0, 3, 0.5, 0], np.float32)
    tree = sum_tree.update(sum_tree.empty_tree(6), jnp.arange(6), jnp.array(priority))
    share = np.linspace(0, 1, 200, dtype=np.float32)  # with both ends
    found = sum_tree.find(tree, jnp.array(share))
    expected = np.minimum(np.searchsorted(np.cumsum(priority), share * priority.sum(), side="right"), 4)
    np.testing.assert_array_equal(found.leaf, expected)
    assert set(expected) == {1, 3, 4}
    np.testing.assert_array_equal(found.priority, priority[expected])
    assert found.total == sum_tree.total(tree) == 4.5


def test_an_index_that_is_out_of_range_changes_nothing():
    tree = sum_tree.update(sum_tree.empty_tree(4), jnp.arange(4), jnp.ones(4))
    np.testing.assert_array_equal(sum_tree.update(tree, jnp.array([-1, 4, 99]), jnp.full(3, 7.0)), tree)


REPLAY = PrioritisedReplay(capacity=48, batch=16, samples_per_insert=4.0, begin=1, alpha=0.7, beta=0.5)


def filled(unrolls: int, replay: PrioritisedReplay = REPLAY, marks: bool = False):
    world = World(4, 3, seed=1, finals=2, marks=marks)
    held = None
    for _ in range(unrolls):
        unroll = world.unroll()
        held = replay.insert(replay.init(unroll, jax.random.key(0)) if held is None else held, unroll)
    return held


def test_steps_are_drawn_in_proportion_to_their_priorities_and_weighted_for_it():
    held = filled(2)
    ids = jnp.stack([jnp.arange(24), jnp.arange(24) // 12], axis=-1)
    told = np.linspace(0.1, 3.0, 24, dtype=np.float32)
    held = REPLAY.feedback(held, Priorities(ids, jnp.array(told)))
    expected = (told + 1e-6) ** 0.7 / ((told + 1e-6) ** 0.7).sum()
    held, batches = jax.lax.scan(lambda held, _: REPLAY.draw(held), held, None, 4000)
    position = np.asarray(batches.ids[..., 0]).reshape(-1)
    seen = np.bincount(position, minlength=24) / len(position)
    assert np.abs(seen - expected).max() < 0.002  # 64,000 draws
    weight = (24 * expected) ** -0.5
    for batch, places in zip(np.asarray(batches.weight)[:20], np.asarray(batches.ids[..., 0])[:20], strict=True):
        np.testing.assert_allclose(batch, weight[places] / weight[places].max(), rtol=1e-4)
    assert int(held.refused) == 0


def test_new_steps_have_the_highest_priority_and_steps_that_are_not_valid_none():
    held = filled(1, marks=True)
    first = jnp.stack([jnp.arange(12), jnp.zeros(12, jnp.int32)], axis=-1)
    held = REPLAY.feedback(held, Priorities(first, jnp.full(12, 5.0)))
    unroll = World(4, 3, seed=2, finals=2, marks=True).unroll()
    unroll.valid[1, 2] = unroll.valid[3, 0] = False
    held = REPLAY.insert(held, unroll)
    leaves = np.asarray(sum_tree.leaves(held.tree))
    expected = np.where(unroll.valid.reshape(-1), np.float32((5.0 + 1e-6) ** 0.7), 0)
    np.testing.assert_allclose(leaves[12:24], expected, rtol=1e-6)
    assert list(np.flatnonzero(expected == 0)) == [1 * 3 + 2, 3 * 3 + 0]
    gone = jnp.stack([jnp.arange(12, 24), jnp.ones(12, jnp.int32)], axis=-1)
    told = REPLAY.feedback(held, Priorities(gone, jnp.full(12, 5.0)))  # told of, and still none
    np.testing.assert_allclose(sum_tree.leaves(told.tree)[12:24], expected, rtol=1e-6)


def test_what_is_told_of_steps_that_are_gone_or_is_no_number_is_dropped_and_counted():
    held = filled(5)  # of 4 slots: unroll 4 lies where unroll 0 was
    before = np.asarray(held.tree)
    ids = jnp.array([[0, 0], [13, 1], [14, 1], [2, 4]])
    held = REPLAY.feedback(held, Priorities(ids, jnp.array([9.0, jnp.nan, jnp.inf, 2.0])))
    leaves = np.asarray(sum_tree.leaves(held.tree))
    was = before[len(before) // 2 :]
    assert leaves[2] == pytest.approx((2.0 + 1e-6) ** 0.7)
    np.testing.assert_array_equal(np.delete(leaves, 2), np.delete(was, 2))
    assert int(held.refused) == 3
    assert REPLAY.figures(held)["refused"] == 3
    assert np.isfinite(held.tree).all()


def test_beta_grows_to_one():
    replay = PrioritisedReplay(begin=1, beta=0.4, beta_draws=10)
    np.testing.assert_allclose([replay._beta(jnp.int32(k)) for k in (0, 5, 10, 99)], [0.4, 0.7, 1.0, 1.0], rtol=1e-6)


def test_a_uniform_replay_draws_every_step_alike_and_counts_what_it_does():
    replay = UniformReplay(capacity=30, batch=16, samples_per_insert=4.0, begin=1)
    held = filled(5, replay)  # 2 slots of 12 steps
    held, batches = jax.lax.scan(lambda held, _: replay.draw(held), held, None, 3000)
    share = np.bincount(np.asarray(batches.ids[..., 0]).reshape(-1), minlength=24) / 48_000
    assert np.abs(share - 1 / 24).max() < 0.004
    figures = {name: float(value) for name, value in replay.figures(held).items()}
    assert figures == {"inserted": 60, "held": 24, "evicted": 36, "sampled": 48_000}
