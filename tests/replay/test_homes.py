"""A store's homes in a worker give what the pure store gives, bit for bit: in NumPy memory, and on JAX's CPU device."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracle import World

from weft.core.types import Priorities
from weft.replay import PrioritisedReplay, UniformReplay
from weft.replay.on_host import KNOWN, HostReplay
from weft.runtimes.roles.store_home import CpuHome, home_of

SETTINGS = {"capacity": 48, "batch": 16, "samples_per_insert": 4.0, "begin": 30, "n_step": 3, "reward_clip": 0.5}
KINDS = {
    "uniform": UniformReplay(**SETTINGS),
    "prioritised": PrioritisedReplay(**SETTINGS, alpha=0.7, beta=0.5, beta_draws=9),
}
HOMES = {"host": HostReplay, "cpu": CpuHome}
KEY = jax.random.key(3)


def places(batch, count):
    """Memory for so many batches, with other numbers in it."""
    return jax.tree.map(lambda x: np.full((count, *np.shape(x)), 77).astype(np.asarray(x).dtype), batch)


def same(a, b):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    return all(np.array_equal(_words(x), _words(y)) for x, y in zip(a, b, strict=True))


def _words(x):
    return np.asarray(jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


@pytest.mark.parametrize(
    ("where", "kind", "marks"),
    [("host", "uniform", False), ("host", "prioritised", True), ("cpu", "prioritised", False)],
)
def test_a_home_keeps_draws_and_counts_what_the_pure_store_does(where, kind, marks):
    """Over more unrolls than there are slots, with lost episodes, and with a home that is saved and made again."""
    replay, world = KINDS[kind], World(4, 3, seed=5, finals=2, marks=marks)
    insert, draw, tell = jax.jit(replay.insert), jax.jit(replay.draw), jax.jit(replay.feedback)
    held, home, drawn = None, None, 0
    for number in range(7):
        unroll = world.unroll()
        if held is None:
            held, home = replay.init(unroll, KEY), HOMES[where](replay, unroll, KEY)
        assert home.waits() == int(replay.waits(held))
        held = jax.block_until_ready(insert(held, unroll))
        home.insert(unroll)
        jax.tree.map(lambda x: x.fill(0), unroll)  # its memory is its owner's again
        if number == 4:
            world.lose(1)
            home = HOMES[where](replay, unroll, KEY, jax.tree.map(lambda x: x, home.state))
        if number < 2:
            continue
        for count in (1, 2):
            batches = []
            for _ in range(count):
                held, batch = draw(held)
                batches.append(batch)
            into = places(batches[0], count)
            home.draw(into)
            assert same(into, jax.tree.map(lambda *x: np.stack(x), *batches))
            drawn += count
            priority = np.random.default_rng(drawn).random((count, 16), np.float32)
            ids = np.stack([np.asarray(batch.ids) for batch in batches])
            ids[:, 3] = -1, -1  # none of its own
            for k in range(count):
                held = tell(held, Priorities(ids[k], priority[k]))
            home.feedback(Priorities(ids, priority))
        assert home.figures() == {name: float(x) for name, x in replay.figures(held).items()}
    assert drawn > 5
    # What was written where no episode was cut has no meaning.
    assert same(home.state._replace(ring=None), held._replace(ring=None))
    rows = jax.tree.leaves(home.state.ring.observation)[0][:, :5], jax.tree.leaves(held.ring.observation)[0][:, :5]
    assert same(*rows)
    assert same(home.state.ring._replace(observation=None), held.ring._replace(observation=None))


def test_replays_of_ours_lie_in_numpy_memory_and_a_store_of_your_own_on_the_cpu():
    class Mine(UniformReplay):
        pass

    unroll = World(4, 3, seed=5, finals=2, marks=False).unroll()
    assert all(isinstance(home_of(replay, unroll, KEY), HostReplay) for replay in KINDS.values())
    assert {type(replay) for replay in KINDS.values()} == set(KNOWN)
    assert isinstance(home_of(Mine(**SETTINGS), unroll, KEY), CpuHome)


def test_shards_keep_together_what_one_would():
    whole = KINDS["prioritised"]
    part = whole.share(2)
    assert (part.capacity, part.begin, part.beta_draws) == (24, 15, 5)
    assert (part.batch, part.samples_per_insert, part.alpha) == (whole.batch, whole.samples_per_insert, whole.alpha)
