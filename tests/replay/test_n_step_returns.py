"""N-step returns out of a ring: against values by hand, and against a slow oracle for rings of every kind."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import World, return_of

from weft.core.types import Finals, Unroll
from weft.replay.returns import transitions
from weft.replay.ring import empty, insert


def unroll(rewards, *, terminated=(), truncated=(), invalid=(), finals=0, begins=0.0, first=True) -> Unroll:
    """One environment; observations are the numbers from ``begins`` on, and a final observation is its step's + 0.5."""
    length = len(rewards)

    def flags(steps):
        return np.isin(np.arange(length), steps)[:, None]

    ended = flags(terminated) | flags(truncated)
    when = np.full((finals, 1), -1, np.int32)
    final = np.zeros((finals, 1, 1), np.float32)
    for k, t in enumerate(truncated[:finals]):
        when[k], final[k] = t, begins + t + 1.5
    seen = begins + np.arange(length + 1, dtype=np.float32)[:, None, None]
    return Unroll(
        observation=seen[:-1],
        first=np.concatenate([[[first]], ended[:-1]]),
        action=np.arange(length, dtype=np.int32)[:, None],
        extras={},
        reward=np.array(rewards, np.float32)[:, None],
        terminated=flags(terminated),
        truncated=flags(truncated),
        bootstrap=np.zeros((length, 1), np.float32),
        carry=(),
        last_observation=seen[-1],
        last_first=ended[-1],
        valid=~flags(invalid) if len(invalid) else None,
        finals=Finals(final, when) if finals else None,
    )


def ring_of(*unrolls, slots=4):
    ring = empty(unrolls[0], slots)
    for each in unrolls:
        ring = insert(ring, each)
    return ring


def drawn(ring, n, discount=0.5):
    held = int(ring.held) * ring.length * ring.envs
    return transitions(ring, jnp.arange(held), n, discount)


def test_one_step_returns_by_hand():
    batch = drawn(ring_of(unroll([1, 2, 4, 8], terminated=[1])), 1)
    assert np.array_equal(batch.reward, [1, 2, 4, 8])
    assert np.array_equal(batch.discount, [0.5, 0, 0.5, 0.5])
    assert np.array_equal(batch.following[:, 0], [1, 2, 3, 4])
    assert np.array_equal(batch.weight, [1, 1, 1, 1])


def test_three_step_returns_end_with_an_episode_and_where_nothing_more_is_stored():
    batch = drawn(ring_of(unroll([1, 2, 4, 8, 16, 32], terminated=[2])), 3)
    # 1 + 2/2 + 4/4, 2 + 4/2, 4: nothing follows a termination. Then 8 + 16/2 + 32/4, 16 + 32/2, 32.
    assert np.array_equal(batch.reward, [3, 4, 4, 24, 32, 32])
    assert np.array_equal(batch.discount, [0, 0, 0, 0.125, 0.25, 0.5])
    assert np.array_equal(batch.following[3:, 0], [6, 6, 6])  # what was seen after the last step that is stored


def test_a_truncation_is_valued_by_its_final_observation():
    batch = drawn(ring_of(unroll([1, 2, 4, 8], truncated=[1], finals=1)), 3)
    assert np.array_equal(batch.reward, [2, 2, 8, 8])
    assert np.array_equal(batch.discount, [0.25, 0.5, 0.25, 0.5])
    assert np.array_equal(batch.following[:, 0], [2.5, 2.5, 4, 4])  # 2.5: not 2, which begins the next episode


def test_a_cut_whose_final_observation_is_not_stored_is_not_learned_from():
    batch = drawn(ring_of(unroll([1, 2, 4, 8], truncated=[1, 2], finals=1)), 1)
    assert np.array_equal(batch.weight, [1, 1, 0, 1])
    assert np.array_equal(drawn(ring_of(unroll([1, 2], truncated=[0])), 1).weight, [0, 1])


def test_a_return_ends_before_a_record_that_is_not_valid():
    batch = drawn(ring_of(unroll([1, 2, 4, 8], invalid=[2])), 3)
    assert np.array_equal(batch.weight, [1, 1, 0, 1])
    assert np.array_equal(batch.reward[:2], [2, 2])
    assert np.array_equal(batch.discount[:2], [0.25, 0.5])
    assert np.array_equal(batch.following[:2, 0], [2, 2])  # seen before the step that failed: known, and fit to value


def test_returns_go_on_into_the_next_unroll_if_that_begins_where_this_one_ended():
    first, second = unroll([1, 2]), unroll([4, 8], begins=2.0, first=False)
    joined = drawn(ring_of(first, second), 3)
    assert np.array_equal(joined.reward, [3, 6, 8, 8])
    assert np.array_equal(joined.following[:, 0], [3, 4, 4, 4])
    other = drawn(ring_of(first, unroll([4, 8], begins=7.0)), 3)  # of another episode: a worker was replaced
    assert np.array_equal(other.reward, [2, 2, 8, 8])
    assert np.array_equal(other.following[:, 0], [2, 2, 9, 9])


def test_the_oldest_is_overwritten_and_the_newest_does_not_lead_to_it():
    unrolls = [unroll([2.0**k], begins=k, first=k == 0) for k in range(5)]
    ring = ring_of(*unrolls, slots=3)
    batch = drawn(ring, 3)
    assert np.array_equal(batch.observation[:, 0], [3, 4, 2])  # unrolls 3 and 4 lie in the places of 0 and 1
    assert np.array_equal(batch.reward, [8 + 8, 16, 4 + 4 + 4])
    assert np.array_equal(batch.following[:, 0], [5, 5, 5])
    assert np.array_equal(batch.ids[:, 1], [3, 4, 2])


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 3, 4])
@pytest.mark.parametrize("marks", [False, True], ids=["all valid", "with marks"])
def test_every_transition_is_the_oracles(n, length, marks):
    finals, slots, inserted = 2 if length > 1 else 1, 5, 13
    world = World(length, 3, seed=n, finals=finals, marks=marks)
    everything = jax.jit(lambda ring: transitions(ring, jnp.arange(slots * length * 3), n, 0.9))
    put = jax.jit(insert)
    ring = None
    for k in range(inserted):
        message = world.unroll()
        ring = put(empty(message, slots) if ring is None else ring, message)
        if k in (9, 11):
            world.lose(k % 3)
        batch = jax.tree.map(np.asarray, everything(ring))
        for at, (position, number) in enumerate(batch.ids[: int(ring.held) * length * 3]):
            env, t = int(position) % 3, int(number) * length + int(position) // 3 % length
            assert number > k - slots
            step = world.steps[env][t]
            assert batch.weight[at] == step.valid
            if not step.valid:
                continue
            assert (batch.observation[at, 0], batch.action[at]) == (step.seen, step.action)
            expected = return_of(world.steps[env], t, n, 0.9)
            assert batch.reward[at] == pytest.approx(expected["reward"], abs=1e-5)
            assert batch.discount[at] == pytest.approx(expected["discount"])
            if expected["discount"]:
                assert batch.following[at, 0] == expected["following"]
