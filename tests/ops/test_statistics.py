import jax
import jax.numpy as jnp
import numpy as np
import pytest

from weft.core.errors import ConfigError
from weft.core.specs import Box, Discrete
from weft.ops import statistics

RECORD = {"speed": jax.ShapeDtypeStruct((3,), jnp.float32), "height": jax.ShapeDtypeStruct((), jnp.float32)}
update = jax.jit(statistics.update, static_argnames="mean_over_replicas")


def data(seed, lead, offset=5.0, scale=2.0):
    rng = np.random.default_rng(seed)
    return {
        "speed": rng.normal(offset, scale, (*lead, 3)).astype(np.float32),
        "height": rng.normal(-offset, scale, lead).astype(np.float32),
    }


def assert_moments(stats, rows, rtol=1e-4):
    """``stats`` are those of ``rows``: a list of trees of ``[n, ...]``, together."""
    for name in rows[0]:
        together = np.concatenate([r[name] for r in rows]).astype(np.float64)
        np.testing.assert_allclose(stats.mean[name], together.mean(0), rtol=rtol)
        np.testing.assert_allclose(stats.var[name], together.var(0), rtol=rtol)


def flat(tree):
    return {"speed": tree["speed"].reshape(-1, 3), "height": tree["height"].reshape(-1)}


def test_batches_merge_to_the_whole():
    stats = statistics.init(RECORD)
    batches = [data(seed, (7, 5), offset=3.0 * seed) for seed in range(6)]
    for batch in batches:
        stats = update(stats, batch)
    assert stats.seen == 6 * 35
    assert_moments(stats, [flat(b) for b in batches])


def test_order_does_not_matter():
    batches = [data(seed, (11,), offset=4.0 * seed) for seed in range(5)]
    results = []
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        stats = statistics.init(RECORD)
        for i in order:
            stats = update(stats, batches[i])
        results.append(stats)
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_batches_may_differ_in_size():
    stats = statistics.init(RECORD)
    batches = [data(0, (100,)), data(1, (3,), offset=50.0), data(2, (1,), offset=-50.0)]
    for batch in batches:
        stats = update(stats, batch)
    assert_moments(stats, batches)


def test_invalid_records_are_not_read():
    valid = np.random.default_rng(9).random((7, 5)) < 0.5
    batch = data(0, (7, 5))
    kept = {k: v[valid] for k, v in batch.items()}
    spoiled = {k: np.where(valid.reshape(valid.shape + (1,) * (v.ndim - 2)), v, np.nan) for k, v in batch.items()}
    stats = update(statistics.init(RECORD), spoiled, valid)
    assert stats.seen == valid.sum()
    assert_moments(stats, [kept])
    unchanged = update(stats, spoiled, np.zeros_like(valid))
    for a, b in zip(jax.tree.leaves(stats), jax.tree.leaves(unchanged), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_at_all_changes_nothing():
    stats = update(statistics.init(RECORD), data(0, (4,)), np.zeros(4, bool))
    for a, b in zip(jax.tree.leaves(stats), jax.tree.leaves(statistics.init(RECORD)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reduce", [jax.lax.pmean, jax.lax.psum], ids=["mean", "sum"])
def test_replicas_merge_to_the_whole(reduce):
    """Four replicas with different numbers of valid records, one with none, and means that differ widely."""
    batches = [data(seed, (9,), offset=10.0 * seed) for seed in range(4)]
    valid = np.arange(9)[None] < np.asarray([9, 4, 0, 7])[:, None]
    stacked = {k: np.stack([b[k] for b in batches]) for k in RECORD}
    start = update(statistics.init(RECORD), data(8, (20,)))

    def replica(batch, valid):
        return statistics.update(start, batch, valid, lambda tree: reduce(tree, "replicas"))

    merged = jax.jit(jax.vmap(replica, axis_name="replicas"))(stacked, valid)
    for leaf in jax.tree.leaves(merged):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    if reduce is jax.lax.psum:  # seen by all, as the 20 before were
        rows = [data(8, (20,)), *({k: v[w] for k, v in b.items()} for b, w in zip(batches, valid, strict=True))]
        assert merged.seen[0] == 40
        assert_moments(jax.tree.map(lambda x: x[0], merged), rows)
    else:  # the 20 before are each replica's own count, so they weigh four times
        rows = [data(8, (20,))] * 4 + [{k: v[w] for k, v in b.items()} for b, w in zip(batches, valid, strict=True)]
        assert merged.seen[0] == 25
        assert_moments(jax.tree.map(lambda x: x[0], merged), rows)


def test_data_far_from_zero_keep_their_digits():
    """Deviation 1 at 10,000: squares of 1e8 in float32 would leave nothing of it."""
    batches = [data(seed, (512,), offset=1e4, scale=1.0) for seed in range(20)]
    stats = statistics.init(RECORD)
    for batch in batches:
        stats = update(stats, batch)
    assert_moments(stats, batches, rtol=1e-3)


def test_long_runs_neither_drift_nor_freeze():
    """From a full count on, what is kept moves towards the data by each batch's share of the count."""
    full = statistics.RunningStatistics(
        jnp.float32(statistics.MAX_SEEN),
        {"speed": jnp.zeros(3), "height": jnp.zeros(())},
        {"speed": jnp.ones(3), "height": jnp.ones(())},
    )
    batch = {"speed": np.full((4096, 3), 2.0, np.float32), "height": np.full(4096, 2.0, np.float32)}
    stats = jax.jit(lambda s: jax.lax.fori_loop(0, 8192, lambda _, s: statistics.update(s, batch), s))(full)
    assert stats.seen == statistics.MAX_SEEN
    # 8192 batches of 4096 are twice the count: e^-2 of the start is left
    left = (1 - 4096 / (statistics.MAX_SEEN + 4096)) ** 8192
    np.testing.assert_allclose(stats.mean["height"], 2.0 * (1 - left), rtol=1e-3)
    assert (stats.var["speed"] > 0).all()


def test_normalise():
    batch = data(0, (64,))
    stats = update(statistics.init(RECORD), batch)
    scaled = statistics.normalise(stats, batch)
    for name in RECORD:
        x = batch[name]
        np.testing.assert_allclose(scaled[name], (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    uncentred = statistics.normalise(stats, batch, centre=False)
    np.testing.assert_allclose(uncentred["height"], batch["height"] / batch["height"].std(), rtol=1e-4)


def test_normalise_clips():
    stats = update(statistics.init(RECORD), data(0, (64,)))
    far = {"speed": jnp.full((2, 3), 1e6), "height": jnp.full((2,), -1e6)}
    scaled = statistics.normalise(stats, far, clip=4.0)
    np.testing.assert_array_equal(scaled["speed"], 4.0)
    np.testing.assert_array_equal(scaled["height"], -4.0)
    assert (statistics.normalise(stats, far, clip=None)["speed"] > 1e4).all()


def test_before_any_data_nothing_changes():
    batch = data(0, (4,))
    scaled = statistics.normalise(statistics.init(RECORD), batch)
    for name in RECORD:
        np.testing.assert_allclose(scaled[name], batch[name], rtol=1e-6)


def test_a_constant_is_normalised_to_zero():
    batch = {"speed": np.full((1000, 3), 1000.1, np.float32), "height": np.full(1000, 0.1, np.float32)}
    scaled = statistics.normalise(update(statistics.init(RECORD), batch), batch)
    np.testing.assert_allclose(scaled["speed"], 0.0, atol=1e-3)
    np.testing.assert_allclose(scaled["height"], 0.0, atol=1e-3)


def test_only_floats_take_part_and_spaces_will_do():
    spaces = {"pixels": Box((4, 4), "uint8", 0, 255), "which": Discrete(3), "position": Box((2,))}
    rng = np.random.default_rng(0)
    batch = {
        "pixels": rng.integers(0, 255, (8, 4, 4), np.uint8),
        "which": rng.integers(0, 3, 8, np.int32),
        "position": rng.normal(7.0, 3.0, (8, 2)).astype(np.float32),
    }
    stats = update(statistics.init(spaces), batch)
    np.testing.assert_allclose(stats.mean["position"], batch["position"].mean(0), rtol=1e-5)
    assert sum(leaf.size for leaf in jax.tree.leaves(stats)) == 1 + 2 + 2
    scaled = statistics.normalise(stats, batch)
    for name in ("pixels", "which"):
        assert scaled[name] is batch[name]
    assert np.abs(np.mean(scaled["position"])) < 1e-5


def test_a_tree_without_floats_is_left_alone():
    stats = statistics.init(Discrete(3))
    batch = jnp.arange(3)
    assert statistics.update(stats, batch) is stats
    assert statistics.normalise(stats, batch) is batch


def test_another_structure_is_refused():
    with pytest.raises(ConfigError, match="structure"):
        statistics.normalise(statistics.init(RECORD), {"speed": jnp.zeros(3)})
