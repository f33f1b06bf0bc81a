"""A fixed replay: every step alike often, each with what it led to; nothing of what act brings."""

from __future__ import annotations

import jax
import numpy as np

from weft.replay import FixedReplay, Steps

# Two episodes: one of three steps that terminated, one of two that was truncated.
STEPS = Steps(
    observation=np.array([0, 1, 2, 3, 10, 11, 12], np.float32)[:, None],
    row=np.array([0, 1, 2, 4, 5], np.int32),
    action=np.array([0, 1, 0, 1, 0], np.int32),
    reward=np.array([1, 2, 3, 4, 5], np.float32),
    terminated=np.array([False, False, True, False, False]),
    action_mask=np.arange(14).reshape(7, 2) % 4 == 0,
)
KEY = jax.random.key(3)


def test_what_a_step_led_to_where_it_terminated_and_where_it_was_cut():
    replay = FixedReplay(STEPS, batch=500, discount=0.9, reward_scale=2.0, reward_clip=9.0)
    held, batch = jax.jit(replay.draw)(jax.jit(lambda: replay.init(None, KEY))())
    rows = {}
    for k in range(500):
        seen = (batch.action[k], batch.reward[k], batch.discount[k], batch.following[k, 0])
        rows[float(batch.observation[k, 0])] = tuple(round(float(x), 3) for x in seen)
    assert rows == {
        0: (0, 2, 0.9, 1),
        1: (1, 4, 0.9, 2),
        2: (0, 6, 0.0, 3),
        10: (1, 8, 0.9, 11),
        11: (0, 9, 0.9, 12),
    }
    assert batch.weight.tolist() == [1.0] * 500
    row = STEPS.row[np.asarray(batch.ids[:, 0])]
    np.testing.assert_array_equal(batch.action_mask, STEPS.action_mask[row])
    np.testing.assert_array_equal(batch.following_mask, STEPS.action_mask[row + 1])
    assert {name: float(x) for name, x in replay.figures(held).items()} == {"held": 5, "sampled": 500}


def test_every_step_is_drawn_alike_often_and_each_draw_is_another():
    replay = FixedReplay(STEPS, batch=1000)
    held = replay.init(None, KEY)
    counts = np.zeros(5)
    for _ in range(20):
        held, batch = replay.draw(held)
        counts += np.bincount(np.asarray(batch.ids[:, 0]), minlength=5)
    assert np.abs(counts / counts.sum() - 0.2).max() < 0.015
    assert not np.array_equal(replay.draw(held)[1].ids, batch.ids)


def test_it_has_all_from_the_start_and_takes_nothing_in():
    replay = FixedReplay(STEPS, batch=4, updates=7)
    held = replay.init(None, KEY)
    assert replay.insert(held, "an unroll") is held
    assert (replay.draws(None), replay.fills(None), int(replay.waits(held))) == (7, 0, 0)


def test_the_data_are_no_part_of_any_program():
    """They would be compiled into it: the text of the program has none of its numbers."""
    many = STEPS._replace(reward=np.arange(100_000, dtype=np.float32))
    text = jax.jit(lambda key: FixedReplay(many).init(None, key)).lower(KEY).as_text()
    assert len(text) < 20_000


def test_seeds_side_by_side_draw_differently_from_the_same_data():
    replay = FixedReplay(STEPS, batch=50)
    held = jax.jit(jax.vmap(lambda key: replay.init(None, key)))(jax.random.split(KEY, 2))
    np.testing.assert_array_equal(held.steps.reward[0], held.steps.reward[1])
    batch = jax.vmap(replay.draw)(held)[1]
    assert not np.array_equal(batch.ids[0], batch.ids[1])
