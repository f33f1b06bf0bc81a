"""Sequences out of a replay: every one against the world that it was drawn from, step by step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import World

from weft.core.errors import ConfigError
from weft.core.types import Priorities
from weft.replay import SequenceReplay

LENGTH, ENVS = 5, 3


def filled(unrolls: int, *, lose: tuple[int, ...] = (), slots: int = 6, **settings):
    """A replay that has taken so many unrolls; environment 1 begins anew before each of ``lose``."""
    world = World(LENGTH, ENVS, seed=4, finals=LENGTH, marks=True)
    settings = {"capacity": slots * LENGTH * ENVS, "batch": 16, "begin": 1, **settings}
    replay = SequenceReplay(**settings)
    held, insert = None, jax.jit(replay.insert)
    for u in range(unrolls):
        if u in lose:
            world.lose(1)
        carry = np.full((ENVS, 2), u, np.float32) + np.arange(ENVS, dtype=np.float32)[:, None] / 8
        unroll = world.unroll()._replace(carry=carry)
        held = replay.init(unroll, jax.random.key(1)) if held is None else held
        held = insert(held, unroll)
    return world, replay, held


def test_every_sequence_is_an_unroll_as_it_was_with_what_each_step_led_to_and_the_one_before():
    world, replay, held = filled(9, lose=(6,))  # 9 into 6 slots: the first three are gone
    draw, unrolls = jax.jit(replay.draw), set()
    for _ in range(10):
        held, batch = draw(held)
        for n in range(replay.batch):
            position, u = (int(x) for x in batch.ids[n])
            env = position % ENVS
            unrolls.add((u, env))
            steps = world.steps[env][u * LENGTH : (u + 1) * LENGTH]
            np.testing.assert_array_equal(batch.observation[:, n, 0], [s.seen for s in steps])
            np.testing.assert_array_equal(batch.action[:, n], [s.action for s in steps])
            np.testing.assert_array_equal(batch.terminated[:, n], [s.terminated for s in steps])
            np.testing.assert_array_equal(batch.truncated[:, n], [s.truncated for s in steps])
            np.testing.assert_array_equal(batch.valid[:, n], [s.valid for s in steps])
            np.testing.assert_allclose(batch.reward[:, n], [s.reward for s in steps], rtol=1e-6)
            inside = [t for t, s in enumerate(steps) if not s.terminated]
            np.testing.assert_array_equal(batch.following[inside, n, 0], [steps[t].led_to for t in inside])
            np.testing.assert_array_equal(batch.carry[n], np.full(2, u + env / 8))
            assert bool(batch.known[:, n].all())
            before = batch.earlier
            stored = u - 1 >= 3
            # After a record that is not valid an episode begins, for which no carry is wanted.
            led_up = stored and world.steps[env][u * LENGTH - 1].valid and not (env == 1 and u == 6)
            assert bool(before.joined[n]) == led_up
            if stored:
                earlier = world.steps[env][(u - 1) * LENGTH : u * LENGTH]
                np.testing.assert_array_equal(before.observation[:, n, 0], [s.seen for s in earlier])
                np.testing.assert_array_equal(before.carry[n], np.full(2, u - 1 + env / 8))
    assert unrolls == {(u, env) for u in range(3, 9) for env in range(ENVS)}


def test_a_cut_without_its_final_observation_is_not_known():
    _, replay, held = filled(1)
    cut = held.ring.truncated & ~held.ring.terminated
    assert bool(cut.any())
    held = held._replace(ring=held.ring._replace(cut=jnp.full_like(held.ring.cut, -1)))
    _, batch = replay.draw(held)
    np.testing.assert_array_equal(batch.known, ~batch.truncated)


def test_priorities_draw_sequences_and_what_is_stale_is_refused():
    _, replay, held = filled(6, alpha=1.0, beta=1.0)
    ids = jnp.stack([jnp.arange(6 * ENVS), held.ring.number(jnp.arange(6 * ENVS) // ENVS)], -1)
    held = replay.feedback(held, Priorities(ids, jnp.where(jnp.arange(6 * ENVS) == 7, 1e6, 0.0)))
    held, batch = replay.draw(held)
    assert (batch.ids[:, 0] == 7).all()
    wrong = Priorities(ids[:3].at[0, 1].add(1), jnp.array([1.0, jnp.nan, 2.0]))
    held = replay.feedback(held, wrong)
    assert int(held.refused) == 2
    assert float(replay.figures(held)["sampled"]) == replay.batch * LENGTH


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"capacity": 100, "batch": 32}, "holds 20 sequences of 5, and a batch has 32"),
        ({"capacity": 1000, "batch": 32, "samples_per_insert": 4.0}, "less than half a batch of 32 sequences"),
    ],
)
def test_what_could_never_be_drawn_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        SequenceReplay(begin=1, **{"samples_per_insert": 100.0, **settings}).check("R2D2", LENGTH, ENVS)
