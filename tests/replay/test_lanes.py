"""Unrolls of several lanes that take turns in one ring: each is followed by the next one of its own lane."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracle import World, return_of

from weft.replay import PrioritisedReplay, SequenceReplay, UniformReplay
from weft.replay.on_host import HostReplay
from weft.runtimes.roles.store_home import CpuHome

LENGTH, ENVS, LANES, SLOTS = 4, 2, 3, 7
SETTINGS = {"capacity": SLOTS * LENGTH * ENVS, "batch": 32, "begin": 1, "samples_per_insert": 8.0}
KEY = jax.random.key(3)


def filled(replay, home=None):
    """A store, or its home, after 25 unrolls of three lanes that are not equally quick; lane 1 begins anew twice.

    Also the worlds of the lanes, and for each unroll its lane and how many of that lane came before it.
    """
    worlds = [World(LENGTH, ENVS, seed=k, finals=LENGTH, marks=False) for k in range(LANES)]
    for world, begins in zip(worlds, (0.0, 1e4, 2e4), strict=True):
        world.number = begins
        world.now = [world._new() for _ in range(ENVS)]
    turns = np.random.default_rng(1).choice(LANES, 25, p=[0.55, 0.3, 0.15])
    insert, held, came = jax.jit(replay.insert), None, []
    for number, lane in enumerate(int(k) for k in turns):
        if number in (9, 20):
            worlds[1].lose(0)
        carry = np.full((ENVS, 1), number, np.float32)
        unroll = worlds[lane].unroll()._replace(carry=carry)
        came.append((lane, sum(1 for k, _ in came if k == lane)))
        if held is None:
            held = replay.init(unroll, KEY) if home is None else home(replay, unroll, KEY)
        if home is None:
            held = insert(held, unroll, True, np.int32(lane))
        else:
            held.insert(unroll, lane)
    return worlds, came, held


def test_returns_reach_from_an_unroll_into_the_next_of_its_lane_and_into_no_other():
    replay = UniformReplay(**SETTINGS, n_step=6, discount=0.9).of_lanes(LANES)
    worlds, came, held = filled(replay)
    draw, seen, across = jax.jit(replay.draw), set(), 0
    for _ in range(20):
        held, batch = draw(held)
        for k in range(replay.batch):
            position, number = (int(x) for x in batch.ids[k])
            lane, index = came[number]
            step, env = divmod(position % (LENGTH * ENVS), ENVS)
            steps, at = worlds[lane].steps[env], index * LENGTH + step
            expected = return_of(steps, at, 6, 0.9)
            assert float(batch.observation[k, 0]) == steps[at].seen
            np.testing.assert_allclose(batch.reward[k], expected["reward"], rtol=1e-5)
            np.testing.assert_allclose(batch.discount[k], expected["discount"], rtol=1e-5)
            if expected["discount"]:
                assert float(batch.following[k, 0]) == expected["following"]
            seen.add(number)
            across += step == LENGTH - 1 and expected["discount"] < 0.9**2 - 1e-6 and expected["discount"] > 0
    assert seen == set(range(25 - SLOTS, 25))
    assert across > 20  # from the last step of an unroll


@pytest.mark.parametrize(("kind", "home"), [(UniformReplay, HostReplay), (PrioritisedReplay, CpuHome)])
def test_a_home_in_a_worker_gives_the_same_bits(kind, home):
    replay = kind(**SETTINGS, n_step=3).of_lanes(LANES)
    _, _, held = filled(replay)
    _, _, there = filled(replay, home)
    _, batch = jax.jit(replay.draw)(held)
    into = jax.tree.map(lambda x: np.zeros((1, *x.shape), x.dtype), batch)
    there.draw(into)
    for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(into), strict=True):
        np.testing.assert_array_equal(a, b[0])


def test_a_sequence_comes_with_the_unroll_of_its_lane_that_led_up_to_it():
    replay = SequenceReplay(**SETTINGS).of_lanes(LANES)
    worlds, came, held = filled(replay)
    _, batch = jax.jit(replay.draw)(held)
    numbers, joined, apart = {pair: number for number, pair in enumerate(came)}, 0, 0
    for k in range(replay.batch):
        position, number = (int(x) for x in batch.ids[k])
        (lane, index), env = came[number], position % ENVS
        before = numbers.get((lane, index - 1), -1)
        steps = worlds[lane].steps[env]
        stored = before >= 25 - SLOTS
        last = steps[index * LENGTH - 1]
        led_up = stored and (last.terminated or last.truncated or last.led_to == steps[index * LENGTH].seen)
        assert bool(batch.earlier.joined[k]) == led_up
        if led_up:
            rows = steps[(index - 1) * LENGTH : index * LENGTH]
            np.testing.assert_array_equal(batch.earlier.observation[:, k, 0], [s.seen for s in rows])
            assert float(batch.earlier.carry[k, 0]) == before
        joined, apart = joined + led_up, apart + (before >= 0 and not stored)
    assert joined > 3
    assert apart > 3  # of a slow lane, the one before has made room
